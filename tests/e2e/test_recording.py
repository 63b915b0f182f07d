"""`dhsched demo --record`: the file holds what was spoken, sound and picture in step."""

import asyncio
import json
import sys
from pathlib import Path

import av
import numpy as np
import pytest

from tests.support.system import free_port

pytestmark = [pytest.mark.asyncio]
TEXT = "Papa baba mama. Bobby put a big map up. Pop, pop, pop. My mama may move by me."
FPS = 25
LAG_FRAMES_MAX = 2


async def dhsched(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dhsched",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(150):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def mouth_and_sound(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Per 40 ms: how dark the mouth's region is (open), and the loudness of the sound."""
    with av.open(str(path)) as container:
        pictures = [
            (frame.time, frame.to_ndarray(format="gray").astype(float))
            for frame in container.decode(video=0)
        ]
    with av.open(str(path)) as container:
        resampler = av.AudioResampler(format="fltp", layout="mono", rate=24_000)
        sound: list[np.ndarray] = []
        start: float | None = None
        for frame in container.decode(audio=0):
            start = frame.time if start is None else start
            sound += [piece.to_ndarray()[0] for piece in resampler.resample(frame)]
    samples = np.concatenate(sound)
    size = pictures[0][1].shape[0]
    box = (slice(int(size * 0.55), int(size * 0.80)), slice(int(size * 0.35), int(size * 0.65)))
    rest = np.median(np.stack([picture[box] for _, picture in pictures]), axis=0)
    opened = np.array([np.clip(rest - picture[box], 0, None).mean() for _, picture in pictures])
    loud = np.zeros(len(pictures))
    for index, (time, _) in enumerate(pictures):
        first = int((time - (start or 0)) * 24_000)
        piece = samples[max(first, 0) : max(first, 0) + 960]
        loud[index] = float(np.sqrt((piece**2).mean())) if len(piece) else 0.0
    return opened, loud


def lag_frames(opened: np.ndarray, loud: np.ndarray) -> int:
    """By how many frames the mouth runs behind the sound (negative: ahead), by correlation."""
    a = (opened - opened.mean()) / opened.std()
    b = (loud - loud.mean()) / loud.std()
    reach = range(-12, 13)
    score = {
        lag: float(
            np.mean(a[max(lag, 0) : len(a) + min(lag, 0)] * b[max(-lag, 0) : len(b) - max(lag, 0)])
        )
        for lag in reach
    }
    best = max(score, key=lambda lag: score[lag])
    assert score[best] > 0.3, f"mouth and sound have nothing to do with each other: {score}"
    return best


async def test_the_recording_is_whole_and_in_sync(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    out = tmp_path / "out.mp4"
    status, printed, errors = await dhsched(
        "demo", "--text", str(text), "--record", str(out), "--port", str(free_port()), "--json"
    )
    assert status == 0, errors + printed
    assert json.loads(printed.splitlines()[-1])["seconds"] > 5
    opened, loud = mouth_and_sound(out)
    assert (loud > 0.01).sum() > 4 * FPS, "seconds of speech"
    assert abs(lag_frames(opened, loud)) <= LAG_FRAMES_MAX
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "out.mp4"}


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("demo", "--text", "/does/not/exist", "--record", "x.mp4"), 2, "cannot read"),
        (("demo", "--record", "/no/such/folder/x.mp4"), 2, "does not exist"),
        (("demo", "--colour", "red"), 2, "--colour"),
        (("push", "live-1", "hello", "--kafka", "127.0.0.1:1"), 1, "no Kafka broker"),
        (("push", "live-1", "  ", "--kafka", "127.0.0.1:1"), 2, "no text"),
        (("lives", "--dispatch", "http://127.0.0.1:1"), 1, "no Dispatch"),
    ],
)
async def test_wrong_use_says_what_to_do(
    arguments: tuple[str, ...], status: int, says: str
) -> None:
    got, printed, errors = await dhsched(*arguments)
    assert got == status, errors + printed
    assert says in errors + printed


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        got, printed, errors = await dhsched("demo", "--no-browser", "--port", str(port))
    assert got == 1
    assert str(port) in errors + printed
