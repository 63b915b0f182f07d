"""The logs of a role, as the command line starts it."""

import json
import subprocess
import sys

# What `dhsched.cli.main` does first, and then what every role does.
SCRIPT = """
import logging, sys, structlog
structlog.configure(
    wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    logger_factory=structlog.PrintLoggerFactory(sys.stderr),
)
from hosting.logs import configure_logs
configure_logs("json", sys.argv[1])
log = structlog.get_logger("controller.main")
log.debug("one")
log.info("two", signal="SIGTERM")
log.warning("three")
logging.getLogger("aiokafka").info("four")
"""


def events(level: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, level], capture_output=True, text=True, check=True
    )
    return [json.loads(line)["event"] for line in done.stderr.splitlines()]


def test_our_own_lines_come_at_the_level_that_was_asked_for() -> None:
    assert events("info") == ["two", "three", "four"]
    assert events("debug") == ["one", "two", "three", "four"]
    assert events("warning") == ["three"]
