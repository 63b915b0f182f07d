"""Recorded and streamed MP4: what was spoken is where it belongs, and no half file is ever left."""

import asyncio
import contextlib
import io
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from rtc_output.fragments import Fragmenter
from rtc_output.mp4 import Mp4Writer, RecordingFailed, read_back, remux_to_mp4, stream_mp4
from rtc_output.pacing_loop import PacingLoop
from rtc_output.units import TICK_US, UNIT_US
from schemas.media import FRAMES_PER_S, MediaTick
from tests.browser.synthetic import SyntheticLive, until

SPEECH = (25, 50)


@pytest.fixture(scope="module")
def ticks() -> list[MediaTick]:
    """Four seconds; speech and the moving mouth from second 1 to 2."""
    live = SyntheticLive()
    made: list[MediaTick] = []
    for frame in range(4 * FRAMES_PER_S):
        if frame == SPEECH[0]:
            live.speak((SPEECH[1] - SPEECH[0]) / FRAMES_PER_S)
        made.append(live.next_tick())
    return made


def watched(source: Path | io.BytesIO) -> tuple[list[float], list[bool], list[float], float]:
    """Decode: (times of pictures, mouth open in each, times with sound, end of the sound)."""
    times, mouths, loud, end = [], [], [], 0.0
    with av.open(source if isinstance(source, io.BytesIO) else str(source)) as container:
        for frame in container.decode():
            if isinstance(frame, av.VideoFrame):
                times.append(frame.time)
                mouth = frame.to_ndarray(format="rgb24")[188:192, 120:136].mean(axis=(0, 1))
                mouths.append(bool(mouth[1] < 90))
            else:
                samples = frame.to_ndarray().reshape(-1).astype(float)
                scale = 1.0 if frame.format.name.startswith("flt") else 32768.0
                at = frame.time + np.arange(samples.size) / frame.sample_rate
                loud += at[np.abs(samples) > 0.02 * scale].tolist()
                end = frame.time + samples.size / frame.sample_rate
    return times, mouths, loud, end


def check_sync(source: Path | io.BytesIO) -> None:
    times, mouths, loud, end = watched(source)
    assert len(times) == 100
    assert times == pytest.approx([frame / FRAMES_PER_S for frame in range(100)], abs=1e-4)
    assert end == pytest.approx(4.0, abs=0.01)
    assert loud[0] == pytest.approx(1.0, abs=0.004), "speech starts where it was spoken"
    assert loud[-1] == pytest.approx(2.0, abs=0.02)
    moving = [time for time, is_open in zip(times, mouths, strict=True) if is_open]
    assert 1.0 <= moving[0] <= 1.2
    assert 1.8 <= moving[-1] < 2.0


def boxes(data: bytes) -> list[str]:
    found, at = [], 0
    while at < len(data):
        found.append(data[at + 4 : at + 8].decode())
        at += int.from_bytes(data[at : at + 4], "big")
    assert at == len(data)
    return found


def test_a_recording_is_whole_in_sync_and_starts_with_its_header(
    tmp_path: Path, ticks: list[MediaTick]
) -> None:
    target = tmp_path / "out.mp4"
    writer = Mp4Writer(target)
    for tick in ticks:
        writer.add(tick)
    assert not target.exists(), "the name appears when the file is whole"
    recording = writer.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["out.mp4"]
    assert (recording.pictures, recording.packets) == (100, 200)
    assert recording.seconds == pytest.approx(4.0, abs=0.001)
    assert boxes(target.read_bytes())[:2] == ["ftyp", "moov"]
    check_sync(target)
    writer.abort()
    assert target.exists()


def test_an_older_file_is_replaced_in_one_step(tmp_path: Path, ticks: list[MediaTick]) -> None:
    """Whoever has the old file open goes on reading the old file."""
    target = tmp_path / "out.mp4"
    target.write_bytes(b"an older recording")
    with target.open("rb") as reader:
        writer = Mp4Writer(target)
        for tick in ticks[:10]:
            writer.add(tick)
        writer.finish()
        assert reader.read() == b"an older recording"
    assert read_back(target).pictures == 10


def test_recording_starts_at_a_key_frame(tmp_path: Path, ticks: list[MediaTick]) -> None:
    writer = Mp4Writer(tmp_path / "out.mp4")
    for tick in ticks[10:]:
        writer.add(tick)
    second = next(tick.frame_index for tick in ticks[10:] if tick.keyframe)
    assert writer.finish().pictures == 100 - second


def test_a_gap_in_the_frames_is_a_gap_in_the_file(tmp_path: Path, ticks: list[MediaTick]) -> None:
    target = tmp_path / "out.mp4"
    writer = Mp4Writer(target)
    for tick in (*ticks[:20], *ticks[50:]):
        writer.add(tick)
    recording = writer.finish()
    assert recording.seconds == pytest.approx(4.0, abs=0.001)
    assert recording.pictures == 70
    again = Mp4Writer(tmp_path / "again.mp4")
    again.add(ticks[0])
    with pytest.raises(ValueError, match="went back"):
        again.add(ticks[0])
    again.abort()


def test_nothing_recorded_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    writer = Mp4Writer(tmp_path / "out.mp4")
    with pytest.raises(RecordingFailed, match="no key frame"):
        writer.finish()
    assert list(tmp_path.iterdir()) == []


def test_an_aborted_recording_leaves_nothing(tmp_path: Path, ticks: list[MediaTick]) -> None:
    writer = Mp4Writer(tmp_path / "out.mp4")
    for tick in ticks:
        writer.add(tick)
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(RecordingFailed, match="No such file or directory"):
        Mp4Writer(tmp_path / "missing" / "out.mp4")


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let this process write no larger file, as a full disk would.

    For as short as can be: the limit holds for a log that the test runner writes as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97, 1.0])
def test_a_full_disk_is_a_clear_error_and_the_old_file_stays(
    tmp_path: Path, ticks: list[MediaTick], share: float
) -> None:
    """Wherever it happens: while recording, while rewriting, or in the last bytes of the copy."""
    plain = Mp4Writer(tmp_path / "plain.mp4")
    for tick in ticks:
        plain.add(tick)
    size = plain.finish().size_bytes
    (tmp_path / "plain.mp4").unlink()
    target = tmp_path / "out.mp4"
    target.write_bytes(b"an older recording")
    with files_of_at_most(int(size * share) - 1):
        writer = Mp4Writer(target)
        with contextlib.suppress(RecordingFailed):
            for tick in ticks:
                writer.add(tick)
        with pytest.raises(RecordingFailed, match=r"out\.mp4"):
            writer.finish()
    assert target.read_bytes() == b"an older recording"
    assert [path.name for path in tmp_path.iterdir()] == ["out.mp4"]


@pytest.mark.parametrize("share", [0.35, 0.5, 0.77, 0.99])
def test_a_recording_that_breaks_off_is_saved_as_far_as_it_goes(
    tmp_path: Path, ticks: list[MediaTick], share: float
) -> None:
    """As a crash leaves it: in the middle of a fragment."""
    fragmenter, whole = Fragmenter(1_000_000), b""
    for tick in ticks:
        for half in (0, 1):
            at_us = tick.frame_index * TICK_US + half * UNIT_US
            video = b"" if half else tick.video
            whole += fragmenter.add(
                at_us, opus=tick.opus[half], video=video, keyframe=bool(video) and tick.keyframe
            )
    whole += fragmenter.flush()
    source, target = tmp_path / "cut.mp4", tmp_path / "out.mp4"
    source.write_bytes(whole[: int(len(whole) * share)])
    seconds = remux_to_mp4(source, target)
    assert 0.3 * 4 * share < seconds <= 4 * share + 0.5
    times, _, _, end = watched(target)
    assert end == pytest.approx(times[-1] + 0.04, abs=0.045)


def test_remuxing_what_is_no_mp4_fails_clearly(tmp_path: Path) -> None:
    source = tmp_path / "in.mp4"
    source.write_bytes(b"not an mp4 at all" * 100)
    with pytest.raises(RecordingFailed, match="Invalid data"):
        remux_to_mp4(source, tmp_path / "out.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["in.mp4"]


async def test_a_stream_plays_from_its_first_byte_and_ends_with_the_live() -> None:
    live, pacing = SyntheticLive(), PacingLoop()
    pacing.add(live.egress)
    live.speak(0.4)
    data = b""
    async with asyncio.timeout(20):
        async for part in stream_mp4(live.egress):
            if not data:
                assert part[4:8] == b"ftyp"
            data += part
            if live.egress.position.next_frame > 45 and not live.egress.closed:
                live.close()
    pacing.close()
    kinds = boxes(data)
    assert kinds[:2] == ["ftyp", "moov"]
    assert set(kinds[2:]) == {"moof", "mdat"}
    times, _, loud, end = watched(io.BytesIO(data))
    assert times[0] == 0
    assert len(times) > 40
    assert end == pytest.approx(times[-1] + 0.04, abs=0.041)
    assert loud
    assert live.egress.stats().subscribers == 0


async def test_leaving_a_stream_unsubscribes() -> None:
    live, pacing = SyntheticLive(), PacingLoop()
    pacing.add(live.egress)
    stream = stream_mp4(live.egress)
    async with asyncio.timeout(20):
        await anext(stream)
        assert live.egress.stats().subscribers == 1
        await stream.aclose()
    assert live.egress.stats().subscribers == 0
    live.close()
    pacing.close()


async def test_a_reader_that_does_not_read_is_cut_off_and_holds_bounded_memory() -> None:
    live, pacing = SyntheticLive(), PacingLoop()
    pacing.add(live.egress)
    stream = stream_mp4(live.egress, queue_bytes_max=30_000)
    async with asyncio.timeout(30):
        got = len(await anext(stream))
        await until(lambda: live.egress.position.next_frame >= 100, "frames")
        rest = [part async for part in stream]
    assert got + sum(map(len, rest)) < 60_000
    assert live.egress.stats().subscribers == 0
    live.close()
    pacing.close()


async def test_what_was_sent_can_be_recorded_as_it_was_heard(tmp_path: Path) -> None:
    live, pacing = SyntheticLive(), PacingLoop()
    writer = Mp4Writer(tmp_path / "sent.mp4")
    assert live.egress.subscribe(writer) == ()
    pacing.add(live.egress)
    live.speak(10)
    await until(lambda: live.egress.position.next_frame >= 25, "a second")
    at = live.egress.interrupt(live.utterance + 1)
    await until(lambda: live.egress.position.next_frame >= at.next_frame + 20, "more frames")
    live.close()
    pacing.close()
    recording = await asyncio.to_thread(writer.finish)
    assert recording == read_back(writer.path)
    _, _, loud, _ = watched(writer.path)
    assert loud[-1] == pytest.approx(at.next_frame / FRAMES_PER_S, abs=0.045)


def test_ffprobe_agrees(tmp_path: Path, ticks: list[MediaTick]) -> None:
    writer = Mp4Writer(tmp_path / "out.mp4")
    for tick in ticks:
        writer.add(tick)
    writer.finish()
    try:
        done = subprocess.run(
            ["ffprobe", "-v", "error", "-show_entries", "stream=codec_name,profile",
             "-of", "csv=p=0", str(writer.path)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("ffprobe is not installed")
    assert done.stderr == ""
    assert done.stdout.split() == ["h264,Constrained", "Baseline", "opus,unknown"]
