"""MP4 of a live's encoded packets, copied and never encoded again: streamed, and as a file."""

from collections.abc import AsyncIterator
from pathlib import Path

from rtc_output.egress import LiveEgress
from schemas.media import MediaTick


class RecordingFailed(Exception):
    """The file could not be written (disk full, no permission); no file is left under its name."""


def stream_mp4(egress: LiveEgress, *, queue_bytes_max: int = 4 << 20) -> AsyncIterator[bytes]:
    """Fragmented MP4 from the next key frame on, until the egress closes or the reader lags."""
    raise NotImplementedError


class Mp4Writer:
    """A finished MP4 from ticks: header first, put into place atomically by `finish`."""

    def __init__(self, path: Path) -> None:
        raise NotImplementedError

    def add(self, tick: MediaTick) -> None:
        """Append one tick; ticks before the first key frame are dropped. Raises RecordingFailed."""
        raise NotImplementedError

    def finish(self) -> float:
        """Write the file under its name; returns seconds. Raises RecordingFailed."""
        raise NotImplementedError

    def abort(self) -> None:
        """Leave nothing behind; harmless after `finish`."""
        raise NotImplementedError


def remux_to_mp4(source: Path, target: Path) -> float:
    """Fragmented MP4 file to one with its header first; returns seconds. Raises RecordingFailed."""
    raise NotImplementedError
