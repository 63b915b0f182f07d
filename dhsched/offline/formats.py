"""Everything that can be replayed, as entries of a capture."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from dhsched.offline.entries import Entry

Format: TypeAlias = Literal["avro", "jsonlines", "vtt", "srt", "text"]


def format_of(path: Path) -> Format:
    """The format that the file's name says: .avro, .jsonl, .vtt, .srt, .txt."""
    raise NotImplementedError


def read_as_entries(
    path: Path, format: Format | None = None, *, live_id: str = "replay"
) -> Iterator[Entry]:
    """The entries of a file; offsets and timestamps are made up where it has none.

    `live_id` names the live of formats that name none. Raises CaptureError, with the line's number
    for formats that have lines.
    """
    raise NotImplementedError
