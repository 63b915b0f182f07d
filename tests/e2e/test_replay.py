"""The bundled voice, replayed as it was recorded and as if it had never moved: the same samples."""

import json
import subprocess
import sys
import wave
from pathlib import Path

from schemas.options import LiveOptions
from tests.support.recordings import claimed, in_order, moved, opened, record, write

MID_WORD = 1_130
NEAR_A_JOINT = 2_600
IN_THE_PAUSE = 5_200
BEFORE_THE_INTERRUPT_IS_HEARD = 8_013
SPOKEN = [
    opened(0, LiveOptions(seed=3)),
    claimed(5, 1),
    record(3, 100, {"text": "Papa made a big mango pie. Nobody saw where it went."}),
    record(4, 6_000, {"text": "And this, as everybody in the kitchen will tell you, goes on"}),
    record(9, 8_000, {"kind": "interrupt"}),
    record(12, 8_300, {"text": "Sorry. Bye."}),
    record(13, 8_400, {"kind": "close"}),
]
MOVES = [
    moved(MID_WORD, 2),
    claimed(MID_WORD, 2),
    claimed(NEAR_A_JOINT, 3),
    moved(IN_THE_PAUSE, 4),
    claimed(IN_THE_PAUSE, 4),
    claimed(BEFORE_THE_INTERRUPT_IS_HEARD, 5),
]


def dhsched(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "dhsched", "replay", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def samples(path: Path) -> bytes:
    with wave.open(str(path)) as sound:
        return sound.readframes(sound.getnframes())


def test_a_live_that_moved_speaks_sample_for_sample_as_one_that_did_not(tmp_path: Path) -> None:
    capture = write(tmp_path / "moved.avro", in_order([*SPOKEN, *MOVES]))
    unmoved, out = tmp_path / "unmoved.wav", tmp_path / "moved.wav"
    dhsched(str(capture), "--out", str(unmoved))
    verdict = dhsched(
        *(str(capture), "--ownership", "--out", str(out)),
        *("--verify", str(tmp_path / "unmoved.manifest.json")),
    )
    assert verdict["same"] is True
    assert samples(out) == samples(unmoved)
    made = json.loads((tmp_path / "moved.manifest.json").read_text())
    assert (made["moves"], made["repeated_different"]) == (4, 0)
    assert made["repeated_frames"] > 0, "who is taken from leaves a checkpoint of a moment before"
    first, second = made["segments"][:2]
    assert first["owners"] == [1, 2]
    assert 3 in second["owners"]
    words = (tmp_path / "moved.vtt").read_text()
    assert words == (tmp_path / "unmoved.vtt").read_text()
    assert ">mango" in words
