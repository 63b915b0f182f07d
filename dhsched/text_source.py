"""Text to be spoken, from a file, standard input or the bundled script, cut into records."""

import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

from dhsched.output import CommandFailed
from schemas.text_record import TEXT_BYTES_MAX

RECORD_BYTES: Final = min(TEXT_BYTES_MAX, 1000)


def bundled_script() -> str:
    """What the demo says when it is given nothing else."""
    return resources.files("dhsched").joinpath("demo_script.txt").read_text(encoding="utf-8")


def read_text(source: str) -> str:
    """The text of a file, or of standard input for `-`.

    Raises CommandFailed with exit status 2 when it cannot be read, is not UTF-8 or says nothing.
    """
    name = "standard input" if source == "-" else source
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise CommandFailed(f"cannot read {name}: {error.strerror}", 2) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"{name} is not UTF-8 at byte {error.start}; convert it, for instance with iconv", 2
        ) from error
    if not text.strip():
        raise CommandFailed(f"{name} holds no text to speak", 2)
    return text


def records(text: str) -> Iterator[str]:
    """Cut text into records of at most RECORD_BYTES UTF-8 bytes, at white space where there is any.

    Control characters other than white space are left out: they say nothing and are refused in a
    record. The records joined are the text again (without those).
    """
    clean = "".join(char for char in text if char.isprintable() or char in "\n\t").strip()
    piece = ""
    for word in _words(clean):
        if piece and len((piece + word).encode()) > RECORD_BYTES:
            yield piece
            piece = ""
        piece += word
        while len(piece.encode()) > RECORD_BYTES:
            head = piece.encode()[:RECORD_BYTES].decode(errors="ignore")
            yield head
            piece = piece[len(head) :]
    if piece.strip():
        yield piece


def _words(text: str) -> Iterator[str]:
    """Words with the white space that follows them."""
    start = 0
    for index in range(1, len(text)):
        if text[index - 1].isspace() and not text[index].isspace():
            yield text[start:index]
            start = index
    yield text[start:]
