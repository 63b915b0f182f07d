"""The findings as JSON, as reasons to fail, and as a page."""

from collections import Counter
from typing import Any

import pytest

from tests.sim.campaign import Total
from tests.sim.markdown import page
from tests.sim.report import WORTH_THE_NAME, as_json, failures
from tests.sim.windows import REQUIRED


def ours() -> Total:
    counts = Counter({"workers": 220, "moves": 250, "records": 2_100, "releases": 1_200})
    windows = Counter(dict.fromkeys(REQUIRED, 3))
    return Total(runs=100, cpu_s=1.0, again_ms_max=227, counts=counts, windows=windows)


def caught() -> Total:
    example = {"seed": 7, "invariant": "one_owner", "trace": ["=> one_owner: two of them"]}
    return Total(runs=10, bad_runs=1, bad_seeds=[7], example=example)


def found(**instead: Total) -> dict[str, Any]:
    totals = {"generation": ours(), "claim-only": caught(), "check-then-act": caught(), **instead}
    totals["claim-only"].violations["one_owner"] = 2
    mutants = {"check-then-act": totals.pop("check-then-act")}
    return as_json(seed=1, seconds=61.0, protocols=totals, mutants=mutants, exhaustive=None)


def test_all_is_well() -> None:
    assert failures(found(), windows_needed=True) == []


def test_what_was_not_caught_is_said() -> None:
    (said,) = failures(found(**{"check-then-act": Total(runs=10)}), windows_needed=True)
    assert "check-then-act was not caught in 10 runs" in said


@pytest.mark.parametrize("name", WORTH_THE_NAME)
def test_runs_that_are_not_worth_the_name_are_said(name: str) -> None:
    poor = ours()
    poor.counts[name] = 100
    (said,) = failures(found(generation=poor), windows_needed=True)
    assert f"a run has 1.0 {name} on average" in said
    assert failures(found(generation=poor), windows_needed=False) == []


def test_a_window_that_was_never_entered_is_said() -> None:
    poor = ours()
    del poor.windows["truncated_past_cursor"]
    (said,) = failures(found(generation=poor), windows_needed=True)
    assert "truncated_past_cursor was never entered" in said


def test_the_page_has_what_was_found() -> None:
    text = page(found(), "make simulate RUNS=100")
    assert "`make simulate RUNS=100`" in text
    assert "in 1 min 1 s" in text
    assert "| generation | 100 | **none** | 0 | - | 0 | 1,200 |" in text
    assert "| claim-only | 10 | one_owner 2 | 1 | 7 | 0 | 0 |" in text
    assert "2.2 workers, 2.5 moves, 21.0 records, 12.0 releases, and costs 10.0 ms" in text
    assert "At most 227 ms of sound were heard again, with checkpoints every 250 ms" in text
    assert (
        "| check-then-act | the release reads the generation without conflict | one_owner" in text
    )
    assert "| truncated past cursor | 3 |" in text
