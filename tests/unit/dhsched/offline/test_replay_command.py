"""`dhsched replay` on what people give it: good files, broken files, and outputs in the way."""

import json
import os
import resource
import signal
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from dhsched.offline.capture_file import CaptureReader
from dhsched.offline.replay import ReplayRequest, file_name, replay
from dhsched.offline.replay_job import parts_of
from dhsched.offline.side_by_side import put_side_by_side
from dhsched.offline.verify import compare, load_run, verify_replay
from dhsched.output import CommandFailed, Output
from tests.support.recordings import claimed, in_order, opened, record, stages_file, write

TEXTS = [
    opened(0),
    claimed(5, 1),
    record(3, 200, {"text": "One two. "}),
    record(4, 900, {"text": "Three. "}),
    record(7, 2_500, {"text": "Four. "}),
]


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    return Output.make(True)


def request(folder: Path, source: Path, out: str, **more: Any) -> ReplayRequest:
    more.setdefault("stages", stages_file(folder))
    return ReplayRequest(str(source), folder / out, jobs=1, **more)


def samples(path: Path) -> np.ndarray:
    with wave.open(str(path)) as sound:
        return np.frombuffer(sound.readframes(sound.getnframes()), np.int16)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_capture_becomes_a_film_and_all_that_goes_with_it(
    tmp_path: Path, output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    replay(request(tmp_path, source, "film.mp4"), output)
    (row,) = told(capsys)["lives"]
    assert (row["status"], row["records"], row["segments"]) == ("made", 3, 3)
    for suffix in (".mp4", ".wav", ".vtt", ".events.jsonl", ".frames", ".manifest.json"):
        assert (tmp_path / f"film{suffix}").stat().st_size > 0
    run = load_run(tmp_path / "film.manifest.json")
    assert run.manifest.options["width_px"] == 64, "as the live was opened"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_a_plain_text_can_be_tried(tmp_path: Path, output: Output) -> None:
    source = tmp_path / "story.txt"
    source.write_text("Hello. This is a text.\n\nAnd another.\n")
    replay(request(tmp_path, source, "story.wav", live_id="story"), output)
    run = load_run(tmp_path / "story.manifest.json")
    assert run.manifest.live_id == "story"
    assert run.manifest.picture is None
    assert "Hello" in (tmp_path / "story.vtt").read_text()


def test_done_is_done_and_other_settings_are_in_the_way(
    tmp_path: Path, output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    asked = request(tmp_path, source, "a.wav")
    replay(asked, output)
    before = (tmp_path / "a.manifest.json").stat().st_mtime_ns
    replay(asked, output)
    assert told(capsys)["lives"][0]["status"] == "kept"
    assert (tmp_path / "a.manifest.json").stat().st_mtime_ns == before
    with pytest.raises(CommandFailed, match="exists and is of another replay"):
        replay(request(tmp_path, source, "a.wav", timing="asap"), output)
    replay(request(tmp_path, source, "a.wav", timing="asap", force=True), output)
    assert load_run(tmp_path / "a.manifest.json").manifest.settings["timing"] == "asap"


def test_somebody_elses_file_is_not_replaced(tmp_path: Path, output: Output) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    (tmp_path / "a.wav").write_text("mine")
    with pytest.raises(CommandFailed, match="--force"):
        replay(request(tmp_path, source, "a.wav"), output)
    assert (tmp_path / "a.wav").read_text() == "mine"


# -- verifying


def test_a_replay_is_verified_against_its_manifest(
    tmp_path: Path, output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    replay(request(tmp_path, source, "a.mp4"), output)
    asked = ReplayRequest(str(source), stages=stages_file(tmp_path), jobs=1)
    verify_replay(asked, tmp_path / "a.manifest.json", output, timing_given=False)
    assert told(capsys)["same"] is True


def test_what_differs_is_told_by_place_and_in_decibels(
    tmp_path: Path, output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    replay(request(tmp_path, source, "a.mp4"), output)
    quieter = request(tmp_path, source, "b.mp4", stages=stages_file(tmp_path, loudest=7_000))
    with pytest.raises(CommandFailed) as failed:
        verify_replay(quieter, tmp_path / "a.manifest.json", output, timing_given=False)
    assert failed.value.exit_status == 1
    verdict = told(capsys)
    assert verdict["same"] is False
    assert {(one["segment"], one["what"]) for one in verdict["differences"]} >= {
        (0, "sound"),
        (1, "sound"),
        (2, "sound"),
    }
    assert any(one["what"] == "settings.stages" for one in verdict["because"])
    one, other = samples(tmp_path / "a.wav"), samples(tmp_path / "b.wav")
    assert verdict["first_sample"] == np.flatnonzero(one != other)[0]
    assert verdict["first_sample"] // 960 == verdict["first_frame_of_sound"]
    assert -10 < verdict["snr_db"] < 10, "other noise at nearly the same level"
    assert verdict["first_picture"] is None


def test_runs_under_other_names_are_the_same(tmp_path: Path, output: Output) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    for name in ("a.wav", "b.wav"):
        replay(request(tmp_path, source, name), output)
    one, other = (load_run(tmp_path / f"{name}.manifest.json") for name in "ab")
    assert compare(one, other).same


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]"])
def test_what_is_no_manifest_is_wrong_usage(tmp_path: Path, output: Output, text: str) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(CommandFailed) as failed:
        verify_replay(ReplayRequest(str(source)), tmp_path / "m.json", output, timing_given=False)
    assert failed.value.exit_status == 2


def test_two_films_become_one(tmp_path: Path, output: Output) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    replay(request(tmp_path, source, "long.mp4"), output)
    replay(request(tmp_path, source, "short.mp4", timing="asap"), output)
    out = tmp_path / "both.mp4"
    put_side_by_side(
        tmp_path / "long.mp4", tmp_path / "short.manifest.json", out, output, sound_of=1
    )
    with av.open(str(out)) as film:
        pictures = [frame.to_ndarray(format="gray") for frame in film.decode(video=0)]
    assert len(pictures) == load_run(tmp_path / "long.manifest.json").manifest.frames
    height, width = pictures[0].shape
    assert (width, height) == (132, 90)
    assert pictures[0][:26, :64].max() > 150, "its name stands above it"
    last = pictures[-1].astype(int)
    assert last[40:80, 5:60].mean() > 2 * last[40:80, 75:125].mean(), "what is over is dark"
    with pytest.raises(CommandFailed, match="exists"):
        put_side_by_side(tmp_path / "long.mp4", tmp_path / "short.mp4", out, output, sound_of=0)
    with pytest.raises(CommandFailed, match="there is no film"):
        put_side_by_side(tmp_path / "no.mp4", out, tmp_path / "x.mp4", output, sound_of=0)


# -- bad input


def test_a_file_that_breaks_off_is_replayed_up_to_there(
    tmp_path: Path, output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.avro"
    whole = write(tmp_path / "whole.avro", [*TEXTS, *_more(4_000)]).read_bytes()
    source.write_bytes(whole[:-500])
    with pytest.raises(CommandFailed, match="breaks off at byte") as failed:
        replay(request(tmp_path, source, "a.wav", timing="asap"), output)
    assert failed.value.exit_status == 1
    document = told(capsys)
    assert 0 < document["truncated_at"] < len(whole) - 500
    with CaptureReader(source) as reader:
        assert len(list(reader)) == document["source"]["entries"]
    assert not load_run(tmp_path / "a.manifest.json").manifest.complete


def _more(count: int) -> Iterator[Any]:
    """Of a live that nobody asks for, so that there are several blocks."""
    for at in range(count):
        yield record(100 + at, 3_000 + at, {"kind": "end_turn", "event_id": f"number-{at}"})


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "a.avro"), (b"no container at all", "a.avro"), (b"Obj\x01" + b"\0" * 40, "a.avro")],
)
def test_what_is_no_capture_is_told(
    tmp_path: Path, output: Output, content: bytes, said: str
) -> None:
    source = tmp_path / "a.avro"
    source.write_bytes(content)
    with pytest.raises(CommandFailed, match=said):
        replay(request(tmp_path, source, "out.wav"), output)
    assert not (tmp_path / "out.wav").exists()


def test_an_empty_capture_holds_nothing(tmp_path: Path, output: Output) -> None:
    source = write(tmp_path / "a.avro", [])
    with pytest.raises(CommandFailed, match="holds no record"):
        replay(request(tmp_path, source, "a.wav"), output)
    with pytest.raises(CommandFailed, match="no record of live bert"):
        replay(
            request(tmp_path, write(tmp_path / "b.avro", TEXTS), "a.wav", live_id="bert"), output
        )


def test_many_lives_want_a_folder_or_a_name(
    tmp_path: Path, output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    other = [record(5, 300, {"text": "Other."}, live="b/e:rt")]
    source = write(tmp_path / "a.avro", in_order([*TEXTS, *other]))
    with pytest.raises(CommandFailed, match="holds 2 lives") as failed:
        replay(request(tmp_path, source, "a.wav"), output)
    assert failed.value.exit_status == 2
    replay(request(tmp_path, source, "all", sound_only=True), output)
    assert len(told(capsys)["lives"]) == 2
    assert sorted(path.name for path in (tmp_path / "all").glob("*.wav")) == [
        "anna.wav",
        "b%2Fe%3Art.wav",
    ]


def test_one_live_that_cannot_be_replayed_leaves_the_others(
    tmp_path: Path, output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    disorder = [record(9, 100, {"text": "x"}, "bert"), record(8, 150, {"text": "y"}, "bert")]
    source = write(tmp_path / "a.avro", in_order([*TEXTS, *disorder]))
    with pytest.raises(CommandFailed, match="1 of 2 lives failed"):
        replay(request(tmp_path, source, "all", sound_only=True), output)
    rows = {row["live"]: row for row in told(capsys)["lives"]}
    assert rows["anna"]["status"] == "made"
    assert "out of order" in rows["bert"]["error"]
    assert not list((tmp_path / "all").glob("*bert*"))


def test_outputs_that_cannot_be(tmp_path: Path, output: Output) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    for out, more in (("no/a.mp4", {}), ("a.mp4", {"sound_only": True})):
        with pytest.raises(CommandFailed) as failed:
            replay(request(tmp_path, source, out, **more), output)
        assert failed.value.exit_status == 2
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandFailed, match="cannot make the folder"):
        replay(request(tmp_path, source, "file/under"), output)


def test_no_space_left_leaves_nothing(tmp_path: Path, output: Output) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    asked = request(tmp_path, source, "a.wav")
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, kept[1]))
    try:
        with pytest.raises(CommandFailed, match="1 of 1 lives failed"):
            replay(asked, output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(os.listdir(tmp_path)) == ["a.avro", "stages-NoiseVoice-8000.toml"]


def test_wrong_stages_are_told(tmp_path: Path, output: Output) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    wrong = stages_file(tmp_path, loudest=-1)
    with pytest.raises(CommandFailed, match="lives failed"):
        replay(request(tmp_path, source, "a.wav", stages=wrong), output)
    (tmp_path / "bad.toml").write_text("nonsense = 1")
    with pytest.raises(CommandFailed, match="nonsense") as failed:
        replay(request(tmp_path, source, "a.wav", stages=tmp_path / "bad.toml"), output)
    assert failed.value.exit_status == 2


def test_a_look_that_there_is_not_is_told_before_anything_is_loaded(
    tmp_path: Path, output: Output
) -> None:
    source = write(tmp_path / "a.avro", TEXTS)
    with pytest.raises(CommandFailed, match="no look nobody, only clay") as failed:
        replay(request(tmp_path, source, "a.mp4", stages=None, look="nobody"), output)
    assert failed.value.exit_status == 2


@pytest.mark.parametrize(
    ("live_id", "name"),
    [("anna", "anna"), ("../up", "%2E.%2Fup"), ("ü/ö", "%C3%BC%2F%C3%B6"), ("a b", "a b")],
)
def test_a_live_id_becomes_a_file_name(live_id: str, name: str) -> None:
    assert file_name(live_id) == name


def test_long_ids_stay_different_and_short_enough() -> None:
    names = {file_name("ö" * 60 + end) for end in ("a", "b")}
    assert len(names) == 2
    assert all(len(name) < 200 for name in names)


# -- the command itself


def test_a_killed_replay_goes_on_with_what_was_not_finished(tmp_path: Path) -> None:
    """Two lives at once in processes of their own; the whole group is killed in the middle."""
    lives = ["one", "two", "three"]
    entries = [
        record(3 + at, 200 + 20 * at, {"text": f"Sentence number {at}. "}, live)
        for live in lives
        for at in range(3 if live == "one" else 40)
    ]
    source = write(tmp_path / "a.avro", in_order(entries))
    command = [sys.executable, "-m", "dhsched", "replay", str(source), "--json"]
    command += ["--out", str(tmp_path / "all"), "--sound-only", "--jobs", "2"]
    command += ["--stages", str(stages_file(tmp_path))]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    done = tmp_path / "all" / "one.manifest.json"
    while not done.exists() and first.poll() is None:
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    finished = {path.name for path in (tmp_path / "all").glob("*.manifest.json")}
    stamp = done.stat().st_mtime_ns
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = {row["live"]: row for row in json.loads(again.stdout)["lives"]}
    assert {row["status"] for row in rows.values()} <= {"made", "kept"}
    assert rows["one"]["status"] == "kept"
    assert done.stat().st_mtime_ns == stamp
    assert {f"{live}.manifest.json" for live, r in rows.items() if r["status"] == "kept"} == (
        finished
    )
    assert [row["segments"] for row in (rows["one"], rows["two"])] == [3, 40]
    assert not [name for name in os.listdir(tmp_path / "all") if name.endswith(".part")]


def test_wrong_usage_leaves_with_two(tmp_path: Path) -> None:
    for more in ([], ["--side-by-side", "a", "b"], ["x.avro"]):
        command = [sys.executable, "-m", "dhsched", "replay", *more, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 2, more
        assert "--out" in done.stdout or "name a capture" in done.stdout


def test_parts_of_a_killed_replay_are_found(tmp_path: Path) -> None:
    from dhsched.offline.film import FilmFiles

    files = FilmFiles.beside(tmp_path / "a", pictures=True)
    (tmp_path / ".a.wav.0123abcd.part").write_text("")
    (tmp_path / ".other.wav.0123abcd.part").write_text("")
    assert [path.name for path in parts_of(files)] == [".a.wav.0123abcd.part"]
