"""Results for people and for machines, errors with their status."""

import json

import pytest

from dhsched.output import CommandFailed, Output, fail


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output.make(as_json=True)
    output.note("starting")
    output.result({"live_id": "a", "offset": 3}, "live a")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"live_id": "a", "offset": 3}
    assert printed.err == ""


def test_a_table_keeps_every_field_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    Output.make(as_json=True).table("rows", ("a",), [{"a": 1, "b": None}], "none")
    assert json.loads(capsys.readouterr().out) == {"rows": [{"a": 1, "b": None}]}


def test_a_table_for_people_shows_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"worker_id": "w-1", "ready": True, "load": 0.25, "gone": None}]
    Output.make(as_json=False).table(
        "workers", ("worker_id", "ready", "load", "gone"), rows, "none"
    )
    printed = capsys.readouterr().out
    assert "worker id" in printed
    assert printed.splitlines()[-1].split() == ["w-1", "yes", "0.2", "-"]


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    Output.make(as_json=False).table("lives", ("live",), [], "no lives")
    assert capsys.readouterr().out == "no lives\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_failure_leaves_with_its_status(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        fail(CommandFailed("port 80 is taken", 2), as_json)
    assert left.value.code == 2
    printed = capsys.readouterr()
    assert "port 80 is taken" in (printed.out if as_json else printed.err)
