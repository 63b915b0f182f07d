"""Settings, limits, and starts that cannot work."""

from pathlib import Path

import pytest

from controller.limits import BadLimits, Limits
from controller.main import serve
from controller.segmenter import SegmenterLimits
from controller.session_core import SessionLimits
from controller.settings import WorkerSettings
from hosting.settings import BadSettings
from hosting.start import StartFailed
from schemas.options import LiveOptions


def test_flags_go_before_the_environment_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dhsched.toml"
    file.write_text(
        'kafka = "file:1"\nstore = "lmdb:///file"\n[worker]\nnode = "file"\ncapacity = 3\n'
        "[dispatch]\nsweep = 1\n"
    )
    monkeypatch.setenv("DHSCHED_KAFKA", "environment:1")
    monkeypatch.setenv("DHSCHED_NODE", "environment")
    settings = WorkerSettings.load({"node": "flag", "port": None}, file)
    assert (settings.kafka, settings.store) == ("environment:1", "lmdb:///file")
    assert (settings.node, settings.capacity, settings.port) == ("flag", 3, 0)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[worker]\ncapcity = 3\n", "did you mean capacity"),
        ("colour = 1\n", "colour is not a setting"),
        ("[worker]\ncapacity = 0\n", "capacity"),
        ('[worker]\nnode = "a b"\n', "node"),
        ("[worker.limits]\nbeat_mss = 3\n", "did you mean beat_ms"),
        ("[worker.limits]\nsession = 3\n", "not a number"),
        ("[worker.limits]\n'session.checkpoint_ms' = 5000\n", "checkpoint_ms above 500"),
        ("[worker]\nviewers_max = 2\nviewers_per_live_max = 3\n", "viewers_per_live_max"),
        ('[worker]\nunknown_lives = "maybe"\n', "unknown_lives"),
        ("[worker.unknown_live_options]\nlok = 'clay'\n", "there is no such option"),
        ("worker = 3\n", "must be a table"),
        ("[worker\n", "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, toml: str, message: str) -> None:
    file = tmp_path / "dhsched.toml"
    file.write_text(toml)
    with pytest.raises(BadSettings, match=message):
        WorkerSettings.load({}, file)


def test_a_limit_of_a_part_is_changed(tmp_path: Path) -> None:
    file = tmp_path / "dhsched.toml"
    file.write_text("[worker.limits]\nbeat_ms = 500\n'session.queue.records_max' = 99\n")
    limits = WorkerSettings.load({}, file).checked_limits()
    assert limits.beat_ms == 500
    assert limits.queue.records_max == 99


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot read"):
        WorkerSettings.load({}, tmp_path / "none.toml")


@pytest.mark.parametrize(
    "limits",
    [
        Limits(beat_ms=0),
        Limits(reservation_ms=1_500),
        Limits(session=SessionLimits(checkpoint_ms=501)),
        Limits(session=SessionLimits(segmenter=SegmenterLimits(chars_max=100))),
        Limits(session=SessionLimits(segmenter=SegmenterLimits(settled_ms=500))),
        Limits(session=SessionLimits(segmenter=SegmenterLimits(first_chars=10))),
    ],
)
def test_limits_that_do_not_go_together(limits: Limits) -> None:
    with pytest.raises(BadLimits):
        limits.check()


def test_the_limits_as_shipped_go_together() -> None:
    assert Limits().check() == Limits()


async def test_a_taken_port_is_said_at_once() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartFailed, match="cannot listen"):
            await serve(WorkerSettings.load({"port": port}))


async def test_a_stages_file_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "stages.toml"
    file.write_text("[speech]\ncolour = 1\n")
    with pytest.raises(StartFailed, match="colour"):
        await serve(WorkerSettings.load({"stages": file}))


async def test_a_broker_that_does_not_answer_is_said() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with pytest.raises(StartFailed, match="no Kafka broker answers"):
        await serve(WorkerSettings.load({"kafka": f"127.0.0.1:{port}"}))


def test_records_open_lives_only_where_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "dhsched.toml"
    file.write_text("[worker.unknown_live_options]\nlook = 'studio'\n")
    assert WorkerSettings.load({}, file).auto_create() is None
    settings = WorkerSettings.load({"unknown_lives": "create"}, file)
    assert settings.auto_create() == LiveOptions(look="studio")
