"""The table of GPU runs in docs/gpu.md: one line a run, added by `make bench-gpu MARKDOWN=...`.

PURE.
"""

from collections.abc import Mapping
from typing import Any

EMPTY_LINE = "| *no GPU machine has run it yet* | | | | | | | | |"
_RULE = "|---|---|---|---|---|---|---|---|---|"


def with_run(page: str, result: Mapping[str, Any]) -> str:
    """The page with one more line in its table. Raises `ValueError` when it has none."""
    lines = page.splitlines()
    if _RULE not in lines:
        raise ValueError("the page has no table of GPU runs")
    at = lines.index(_RULE) + 1
    lines = [line for line in lines if line != EMPTY_LINE]
    lines.insert(at, line_of(result))
    return "\n".join(lines) + "\n"


def line_of(result: Mapping[str, Any]) -> str:
    """Date, device, driver, commit, conformance, hop, copy, host round trip, lives."""
    rows = {row["name"]: row for row in result["rows"]}
    device = result["machine"]["device"]
    hop, host = rows.get("ipc_hop_1080p"), rows.get("ipc_hop_1080p_vs_host")
    lives = rows.get("speaking_lives_512_gpu")
    conformance = result["conformance"]
    cells = (
        str(result["at"])[:10],
        device["name"],
        f"{device['driver'] or '?'} (CUDA {device['cuda']})",
        result["commit"],
        "passed" if conformance.get("passed") else "failed",
        _us(hop and hop["value"]),
        _us(hop and hop["against_value"]),
        _us(host and host["against_value"]),
        "failed" if lives is None else f"{lives['value']:.0f}",
    )
    return "| " + " | ".join(cells) + " |"


def _us(value: float | None) -> str:
    return "failed" if value is None else f"{value:,.0f}"
