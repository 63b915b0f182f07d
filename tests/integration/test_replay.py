"""Replays of recorded lives on production's controller, with stages that cost nothing.

The proof of source-independent reconstruction is here: a live that moved is heard sample for
sample as one that did not, wherever in its sentences it moved and however it was taken.
"""

import json
import wave
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dhsched.offline.entries import Entry
from dhsched.offline.film import FilmFiles
from dhsched.offline.manifest import Manifest, read_manifest, same_media
from dhsched.offline.player import Timing
from dhsched.offline.replay_job import JobFailed, LiveJob, StageKeeper, run_job
from dhsched.offline.schedule import survey
from gpu_stages.config import load_stages_config
from rtc_output.mp4 import read_back
from schemas.media import TICK_MS, TICK_SAMPLES
from tests.support.recordings import (
    LIVE,
    PARTITIONS,
    SMALL,
    claimed,
    closed,
    in_order,
    moved,
    opened,
    record,
    stages_file,
)

SPEECH: list[Entry] = [
    opened(0),
    claimed(5, 1),
    record(3, 200, {"text": "One two three. Four five. "}),
    record(5, 900, {"text": "Six seven "}),
    record(6, 1_000, {"text": "eight nine. "}),
    record(8, 4_000, {"text": "A sentence that somebody cuts off in its very middle. "}),
    record(11, 5_100, {"kind": "interrupt"}),
    record(12, 5_300, {"text": "Again. And"}),
    record(14, 5_900, {"kind": "end_turn"}),
    record(15, 7_500, {"text": "Bye now. "}),
    record(16, 8_200, {"kind": "close"}),
]

HANDED_OVER, TAKEN = True, False


class Replayer:
    """Replays with stages that stay loaded."""

    def __init__(self, folder: Path, **stages: Any) -> None:
        self.folder = folder
        self.keeper = StageKeeper()
        self.stages = load_stages_config(stages_file(folder, **stages))

    def __call__(
        self,
        entries: Sequence[Entry],
        name: str,
        *,
        pictures: bool = False,
        timing: Timing = "recorded",
    ) -> Manifest:
        found = survey(entries)
        live = found.lives[LIVE]
        job = LiveJob(
            source={"name": "test"},
            path=Path("none"),
            format=None,
            live=live,
            options=live.options or SMALL,
            partitions=PARTITIONS,
            timing=timing,
            ownership=True,
            sound_only=not pictures,
            stages=self.stages,
            device="cpu",
            files=FilmFiles.beside(self.folder / name, pictures=pictures),
        )
        return run_job(job, entries, self.keeper, lambda _done, _of: None).manifest

    def samples(self, name: str) -> bytes:
        with wave.open(str(self.folder / f"{name}.wav")) as sound:
            return sound.readframes(sound.getnframes())

    def events(self, name: str) -> list[dict[str, object]]:
        lines = (self.folder / f"{name}.events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replayer:
    return Replayer(tmp_path_factory.mktemp("replay"))


@pytest.fixture(scope="module")
def unmoved(replay: Replayer) -> Manifest:
    return replay(SPEECH, "unmoved")


def with_moves(moves: Sequence[tuple[int, bool]]) -> list[Entry]:
    added: list[Entry] = []
    for epoch, (at_ms, handed_over) in enumerate(sorted(moves), start=2):
        added += [moved(at_ms, epoch)] if handed_over else []
        added.append(claimed(at_ms, epoch))
    return in_order([*SPEECH, *added])


def test_what_was_said_is_heard_where_it_was_said(replay: Replayer, unmoved: Manifest) -> None:
    texts = [one.text.strip() for one in unmoved.segments]
    assert texts == [
        "One two three.",
        "Four five.",
        "Six seven eight nine.",
        "A sentence that somebody cuts off in its very middle.",
        "Again.",
        "And",
        "Bye now.",
    ]
    starts = [one.first_frame * TICK_MS for one in unmoved.segments]
    assert 200 <= starts[0] <= 300
    assert 4_000 <= starts[3] <= 4_100
    cut = unmoved.segments[3]
    assert (cut.ends, unmoved.segments[0].ends) == ("interrupted", "whole")
    assert 5_100 <= starts[3] + cut.frames * TICK_MS <= 5_140
    assert unmoved.closed == "close_record"
    kinds = [event["kind"] for event in replay.events("unmoved")]
    assert kinds.count("speak_started") == 7
    assert kinds.count("interrupted") == 1
    samples = len(replay.samples("unmoved")) // 2
    assert samples == unmoved.frames * TICK_SAMPLES == unmoved.sound.length


def test_two_replays_are_the_same_in_every_file(replay: Replayer) -> None:
    for name in ("first", "second"):
        replay(SPEECH, name, pictures=True)
    for suffix in (".mp4", ".wav", ".vtt", ".events.jsonl", ".frames"):
        one, other = (replay.folder / f"{name}{suffix}" for name in ("first", "second"))
        assert one.read_bytes() == other.read_bytes(), suffix
    first, second = (
        read_manifest((replay.folder / f"{name}.manifest.json").read_text())
        for name in ("first", "second")
    )
    assert replace(first, files={}) == replace(second, files={})


def test_pictures_change_no_sample(replay: Replayer, unmoved: Manifest) -> None:
    seen = replay(SPEECH, "seen", pictures=True)
    assert seen.sound == unmoved.sound
    assert seen.picture is not None
    made = read_back(replay.folder / "seen.mp4")
    assert made.pictures == seen.frames == unmoved.frames
    assert made.packets == 2 * seen.frames


# -- moves

MID_WORD = 480
AT_A_JOINT = 780
BEFORE_THE_FIRST = 100
IN_HALF_A_SENTENCE = 950
IN_SILENCE = 3_500
IN_THE_CUT_ONE = 4_777
AT_THE_INTERRUPT = 5_101
BEFORE_SILENCE_IS_HEARD = 5_119
BEHIND_THE_INTERRUPT = 5_250
BEHIND_THE_TURN = 7_000
IN_THE_LAST_WORD = 7_600
POINTS = [
    BEFORE_THE_FIRST,
    MID_WORD,
    AT_A_JOINT,
    IN_HALF_A_SENTENCE,
    IN_SILENCE,
    IN_THE_CUT_ONE,
    AT_THE_INTERRUPT,
    BEFORE_SILENCE_IS_HEARD,
    BEHIND_THE_INTERRUPT,
    BEHIND_THE_TURN,
    IN_THE_LAST_WORD,
]


@pytest.mark.parametrize("handed_over", [HANDED_OVER, TAKEN], ids=["handed_over", "taken"])
@pytest.mark.parametrize("at_ms", POINTS)
def test_a_live_that_moved_is_heard_as_one_that_did_not(
    replay: Replayer, unmoved: Manifest, at_ms: int, handed_over: bool
) -> None:
    name = f"moved-{at_ms}-{handed_over}"
    made = replay(with_moves([(at_ms, handed_over)]), name)
    assert made.moves == 1
    assert same_media(unmoved, made)
    assert replay.samples(name) == replay.samples("unmoved")
    assert not made.repeated_different
    owners = {owner for one in made.segments for owner in one.owners}
    assert owners <= {1, 2}
    assert 2 in owners


def test_both_owners_spoke_the_word_that_it_moved_in(replay: Replayer) -> None:
    made = replay(with_moves([(MID_WORD, HANDED_OVER)]), "both")
    assert made.segments[0].owners == (1, 2)
    assert made.repeated_frames == 0, "who hands over leaves an exact position"


def test_who_is_taken_from_leaves_its_last_checkpoint_and_is_heard_once(replay: Replayer) -> None:
    made = replay(with_moves([(MID_WORD, TAKEN)]), "taken")
    assert made.segments[0].owners == (1, 2)
    assert 0 < made.repeated_frames <= 500 // TICK_MS + 1
    fenced = [event for event in replay.events("taken") if event["kind"] == "claimed"]
    assert [event["epoch"] for event in fenced] == [1, 2]


@pytest.mark.parametrize("seed", range(4))
def test_many_moves_at_any_times(replay: Replayer, unmoved: Manifest, seed: int) -> None:
    random = Random(seed)
    # Not while half a sentence waits for its rest: that waiting begins anew with a new owner.
    times = [at for at in range(210, 8_100, 3) if not 5_290 < at < 5_910 and not 890 < at < 1_070]
    moves = [(at, random.random() < 0.5) for at in random.sample(times, 12)]
    made = replay(with_moves(moves), f"many-{seed}")
    assert made.moves == 12
    assert replay.samples(f"many-{seed}") == replay.samples("unmoved"), moves
    assert not made.repeated_different


def test_a_moved_film_is_whole(replay: Replayer, unmoved: Manifest) -> None:
    """Each owner begins with a key frame, and the viewer's first one after a claim is asked for."""
    made = replay(with_moves([(MID_WORD, TAKEN), (4_500, HANDED_OVER)]), "film", pictures=True)
    assert made.sound == unmoved.sound
    found = read_back(replay.folder / "film.mp4")
    assert (found.pictures, found.packets) == (made.frames, 2 * made.frames)


# -- timing and odd captures


def test_asap_leaves_out_the_pauses_and_nothing_else(replay: Replayer, unmoved: Manifest) -> None:
    made = replay(SPEECH, "asap", timing="asap")
    assert made.frames < unmoved.frames - 60
    for old, new in zip(unmoved.segments, made.segments, strict=True):
        assert (old.text, old.sound, old.samples) == (new.text, new.sound, new.samples)


def test_an_interrupt_before_any_text_is_nothing(replay: Replayer) -> None:
    entries = [record(3, 100, {"kind": "interrupt"}), record(4, 300, {"text": "Hello."})]
    made = replay(entries, "interrupt-first")
    assert [one.text for one in made.segments] == ["Hello."]
    assert made.segments[0].utterance == 1


def test_only_an_interrupt_is_a_short_silence(replay: Replayer) -> None:
    made = replay([record(3, 100, {"kind": "interrupt"})], "interrupt-only")
    assert made.segments == ()
    assert 0 < made.frames * TICK_MS < 5_000


def test_what_cannot_be_read_is_a_dead_letter_and_the_rest_is_spoken(replay: Replayer) -> None:
    bad = replace(record(4, 200, {}), value=b"\x00nonsense")
    made = replay(
        [record(3, 100, {"text": "One. "}), bad, record(5, 300, {"text": "Two. "})], "bad"
    )
    assert [one.text.strip() for one in made.segments] == ["One.", "Two."]
    assert made.dead_letters == 1


def test_a_live_closed_from_outside_ends_where_it_was_closed(replay: Replayer) -> None:
    made = replay(in_order([*SPEECH, closed(4_600, "requested")]), "closed")
    assert made.closed == "requested"
    assert made.segments[-1].ends == "unfinished"
    assert 4_500 <= made.frames * TICK_MS <= 4_700


def test_text_that_breaks_off_is_spoken_after_its_quiet_time(replay: Replayer) -> None:
    made = replay([record(3, 100, {"text": "No full stop"})], "open")
    assert [one.text for one in made.segments] == ["No full stop"]
    assert made.closed == ""


def test_records_out_of_order_are_no_replay(replay: Replayer) -> None:
    entries = [record(5, 100, {"text": "One."}), record(4, 200, {"text": "Two."})]
    with pytest.raises(JobFailed, match="out of order"):
        replay(entries, "disorder")
    assert not list(replay.folder.glob("*disorder*"))


def test_a_segment_that_no_stage_can_make_is_told_and_the_rest_is_spoken(tmp_path: Path) -> None:
    replay = Replayer(tmp_path, voice="BrokenVoice")
    texts = ("One. ", "This is unspeakable. ", "Three. ")
    entries = [record(3 + at, 2_000 * at, {"text": text}) for at, text in enumerate(texts)]
    made = replay(entries, "broken")
    assert [one.text.strip() for one in made.segments] == ["One.", "Three."]
    errors = [event for event in replay.events("broken") if event["kind"] == "error"]
    assert ["no voice for this" in str(one["data"]) for one in errors] == [True]


def test_stages_that_keep_failing_end_the_replay(tmp_path: Path) -> None:
    replay = Replayer(tmp_path, voice="BrokenVoice", loudest=1)
    entries = [record(3 + at, 400 * at, {"text": f"Number {at}. "}) for at in range(12)]
    with pytest.raises(JobFailed, match="no voice for this"):
        replay(entries, "failing")
    assert not list(tmp_path.glob("*failing*"))


def test_the_log_is_let_go_behind_what_is_spoken(
    replay: Replayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that memory does not grow with the capture."""
    monkeypatch.setattr("dhsched.offline.player.LOG_RECORDS_MAX", 4)
    entries = [record(3 + n, 400 * n, {"text": f"Number {n}. "}) for n in range(20)]
    kept = replay(entries, "let-go")
    assert len(kept.segments) == 20
    monkeypatch.undo()
    assert same_media(kept, replay(entries, "not-let-go"))
