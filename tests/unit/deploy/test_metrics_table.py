"""docs/metrics.md names exactly what the roles export."""

import re
from pathlib import Path

from tests.support.exported import exported

TABLE = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| ([\w, ]+) \| (\w+) \| ([\w, ]*) ?\| (\S.*) \|$")


def rows() -> dict[str, tuple[set[str], str]]:
    """Roles and type by name."""
    found: dict[str, tuple[set[str], str]] = {}
    for line in TABLE.read_text().splitlines():
        if not line.startswith("| `"):
            continue
        row = ROW.match(line)
        assert row is not None, f"not a row of the table: {line}"
        name, roles, kind = row.group(1, 2, 3)
        assert name not in found, f"{name} stands there twice"
        found[name] = set(roles.split(", ")), kind
    return found


def test_the_table_is_what_the_roles_export() -> None:
    truth: dict[str, tuple[set[str], str]] = {}
    for role, families in exported().items():
        for name, kind in families.items():
            truth.setdefault(name, (set(), kind))[0].add(role)
    assert rows() == truth
