"""What whoever runs the tests will not have skipped: `DHSCHED_REQUIRE_KAFKA=1` and the like."""

import os


def demanded(what: str) -> bool:
    """Whether `DHSCHED_REQUIRE_<what>` is set, to anything but 0."""
    return os.environ.get(f"DHSCHED_REQUIRE_{what}", "") not in ("", "0")
