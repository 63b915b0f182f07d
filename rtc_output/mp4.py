"""MP4 of a live's encoded packets, copied and never encoded again: streamed, and as a file.

A file is written beside its final name and put into place by one rename, so under that name there
is a whole file or none. While it grows it is fragmented, so even what a crash leaves can be played;
when finished it is rewritten with its header first, which is what players and web servers want.
"""

import asyncio
import contextlib
import os
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
from av.error import FFmpegError

from rtc_output.egress import LiveEgress
from rtc_output.fragments import Fragmenter
from rtc_output.h264 import BadBitstream
from rtc_output.units import TICK_US, UNIT_US, MediaUnit
from schemas.media import MediaTick

SYNC_TOLERANCE_US = TICK_US
STREAM_FRAGMENT_US = 200_000
FILE_FRAGMENT_US = 1_000_000


class RecordingFailed(Exception):
    """The file could not be written (disk full, no permission, nothing to write).

    Nothing is left under its name, and no temporary file either.
    """


@dataclass(frozen=True, slots=True)
class Recording:
    """What a finished file holds, read back from it."""

    seconds: float
    pictures: int
    packets: int
    size_bytes: int


class _Reader:
    """A subscriber whose bytes wait, bounded, for an HTTP client."""

    def __init__(self, bytes_max: int) -> None:
        self.over = False
        self.lagged = False
        self._bytes_max = bytes_max
        self._fragmenter = Fragmenter(STREAM_FRAGMENT_US)
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._ready = asyncio.Event()

    def take(self, unit: MediaUnit) -> None:
        if self.over:
            return
        self._put(
            self._fragmenter.add(
                unit.stream_us, opus=unit.opus, video=unit.video, keyframe=unit.keyframe
            )
        )

    def ended(self) -> None:
        if not self.over:
            self._put(self._fragmenter.flush())
            self.over = True
        self._ready.set()

    def _put(self, data: bytes) -> None:
        if not data:
            return
        if self._size + len(data) > self._bytes_max:
            # A hole would only confuse a decoder; the client may connect again.
            self.over = self.lagged = True
        else:
            self._waiting.append(data)
            self._size += len(data)
        self._ready.set()

    async def next(self) -> bytes:
        """The next bytes; empty at the end."""
        while not self._waiting and not self.over:
            self._ready.clear()
            await self._ready.wait()
        if self.lagged or not self._waiting:
            return b""
        data = self._waiting.popleft()
        self._size -= len(data)
        return data


async def stream_mp4(
    egress: LiveEgress, *, queue_bytes_max: int = 4 << 20
) -> AsyncGenerator[bytes]:
    """Fragmented MP4 (H.264 and Opus) from a key frame on, a fragment per 200 ms.

    Ends when the egress closes, or when the reader is more than `queue_bytes_max` behind. Leaving
    the loop, or `aclose`, unsubscribes.
    """
    reader = _Reader(queue_bytes_max)
    try:
        for unit in egress.subscribe(reader):
            reader.take(unit)
        while data := await reader.next():
            yield data
    finally:
        reader.over = True
        egress.unsubscribe(reader)


@contextlib.contextmanager
def _failing_as_recording(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, FFmpegError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RecordingFailed(f"cannot write {path}: {reason}") from error


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


class Mp4Writer:
    """A finished MP4 from ticks, or, as a subscriber of an egress, from what was really sent.

    `add` times ticks by their frame numbers, so a gap in them is a gap in the file. All methods
    block on the disk; `finish` copies the whole file and belongs into a thread. As a subscriber,
    give it the units that `subscribe` returns, too; when it fails the egress removes it, and
    `finish` says why.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = _temporary(path)
        self._fragmenter = Fragmenter(FILE_FRAGMENT_US)
        self._failure: RecordingFailed | None = None
        with _failing_as_recording(path):
            self._file = self._part.open("xb")

    @property
    def seconds(self) -> float:
        """How much is recorded."""
        return self._fragmenter.duration_us / 1e6

    def add(self, tick: MediaTick) -> None:
        """Append one tick; those before the first key frame are dropped.

        Raises RecordingFailed, after which only `abort` is of use, and ValueError when frame
        numbers go back.
        """
        at_us = tick.frame_index * TICK_US
        self._write(at_us, tick.opus[0], tick.video, tick.keyframe)
        self._write(at_us + UNIT_US, tick.opus[1], b"", False)

    def take(self, unit: MediaUnit) -> None:
        """Append one unit that was sent."""
        self._write(unit.stream_us, unit.opus, unit.video, unit.keyframe)

    def ended(self) -> None:
        """The live has no more media here; the file waits for `finish`."""

    def _write(self, at_us: int, opus: bytes, video: bytes, keyframe: bool) -> None:
        try:
            with _failing_as_recording(self.path):
                self._file.write(
                    self._fragmenter.add(at_us, opus=opus, video=video, keyframe=keyframe)
                )
        except RecordingFailed as failed:
            self._failure = failed
            raise
        except BadBitstream as error:
            self._failure = RecordingFailed(f"cannot write {self.path}: {error}")
            raise self._failure from error

    def finish(self) -> Recording:
        """Put the file into place under its name. Raises RecordingFailed, and then leaves none."""
        try:
            if self._failure is not None:
                raise self._failure
            if not self._fragmenter.started:
                raise RecordingFailed(f"cannot write {self.path}: there was no key frame")
            with _failing_as_recording(self.path):
                self._file.write(self._fragmenter.flush())
                self._file.close()
            return _remux(self._part, self.path)
        finally:
            self.abort()

    def abort(self) -> None:
        """Leave nothing behind; harmless after `finish`."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._part.unlink(missing_ok=True)


def remux_to_mp4(source: Path, target: Path) -> float:
    """Copy an MP4 of any kind to one with its header first, checked, then renamed into place.

    A source that breaks off is used up to the last moment that has both sound and picture. Returns
    the seconds copied. Raises RecordingFailed; an older file under the target's name then stays as
    it was.
    """
    return _remux(source, target).seconds


def _remux(source: Path, target: Path) -> Recording:
    part = _temporary(target)
    try:
        with _failing_as_recording(target):
            copied = _copy_packets(source, part)
            made = read_back(part)
            if (made.pictures, made.packets) != copied:
                raise RecordingFailed(f"cannot write {target}: {made} is not what was copied")
            with part.open("rb") as written:
                os.fsync(written.fileno())
            part.replace(target)
            _sync_folder(target.parent)
            return made
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _copy_packets(source: Path, part: Path) -> tuple[int, int]:
    """Returns how many (pictures, packets of sound) went over."""
    until_us = min(_contents(source)[0].values()) + SYNC_TOLERANCE_US
    counts = {"video": 0, "audio": 0}
    with (
        av.open(str(source), format="mp4") as inner,
        av.open(str(part), "w", format="mp4", options={"movflags": "+faststart"}) as outer,
    ):
        streams = {stream.index: outer.add_stream_from_template(stream) for stream in inner.streams}
        for packet in inner.demux():
            if _is_whole(packet) and _end_us(packet) <= until_us:
                counts[packet.stream.type] += 1
                packet.stream = streams[packet.stream.index]
                outer.mux(packet)
    return counts["video"], counts["audio"]


def read_back(path: Path) -> Recording:
    """Count and time what an MP4 holds, without decoding it.

    Raises RecordingFailed when its two tracks do not end together, FFmpegError when it is no
    MP4.
    """
    ends_us, counts = _contents(path)
    apart_us = abs(ends_us["video"] - ends_us["audio"])
    if apart_us > SYNC_TOLERANCE_US:
        raise RecordingFailed(f"{path}: sound and picture end {apart_us / 1000:.0f} ms apart")
    return Recording(
        seconds=ends_us["video"] / 1e6,
        pictures=counts["video"],
        packets=counts["audio"],
        size_bytes=path.stat().st_size,
    )


def _contents(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """When each track ends, in microseconds, and how many packets it has."""
    ends_us: dict[str, int] = {}
    counts = {"video": 0, "audio": 0}
    with av.open(str(path), format="mp4") as container:
        for packet in container.demux():
            if _is_whole(packet):
                kind = packet.stream.type
                counts[kind] += 1
                ends_us[kind] = max(_end_us(packet), ends_us.get(kind, 0))
    if set(ends_us) != {"video", "audio"}:
        raise RecordingFailed(f"{path} holds {sorted(ends_us)}, not a picture and a sound track")
    return ends_us, counts


def _is_whole(packet: "av.Packet[Any]") -> bool:
    """Neither the empty packet that ends a track nor one that the file breaks off in."""
    return packet.pts is not None and not packet.is_corrupt


def _end_us(packet: "av.Packet[Any]") -> int:
    base = packet.time_base
    pts = (packet.pts or 0) + (packet.duration or 0)
    return pts * base.numerator * 1_000_000 // base.denominator


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
