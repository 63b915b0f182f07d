"""Everything that can be replayed, as entries of a capture.

What is not a capture has no offsets: they are made up, from 0 in each partition, and the records
are encoded as any producer's would be. Times count from Unix time 0, unless the file names moments.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias, get_args

from dhsched.offline.capture_file import CaptureError, CaptureReader
from dhsched.offline.closing import ClosesAtEnd
from dhsched.offline.entries import CapturedRecord, CaptureHeader, Entry
from dhsched.offline.said import READERS, BadLine, Line, Said
from dhsched.text_source import records
from schemas.live_id import BadLiveId, check_live_id
from schemas.partition import partition_of
from schemas.text_record import BadRecord, RecordKind, TextRecord, encode_text_record
from schemas.topics import TEXT_PARTITIONS, TEXT_TOPIC

Format: TypeAlias = Literal["avro", "jsonlines", "vtt", "srt", "text"]

FORMATS: Final[tuple[Format, ...]] = get_args(Format)
DEFAULT_LIVE: Final = "replay"
LINE_BYTES_MAX: Final = 256 * 1024

_BY_SUFFIX: Final[dict[str, Format]] = {
    ".avro": "avro",
    ".part": "avro",
    ".jsonl": "jsonlines",
    ".ndjson": "jsonlines",
    ".jsonlines": "jsonlines",
    ".vtt": "vtt",
    ".srt": "srt",
    ".txt": "text",
    ".text": "text",
}
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


def format_of(path: Path) -> Format:
    """The format that the file's name says. Raises CaptureError for a name that says none."""
    found = _BY_SUFFIX.get(path.suffix.lower())
    if found is None:
        known = ", ".join(FORMATS)
        raise CaptureError(f"{path}: its name does not say what it is; use --format ({known})")
    return found


class TextReader(ClosesAtEnd):
    """Reads a file that people write as `CaptureReader` reads a capture; nothing is held of it.

    Iterating raises CaptureError, with the line's number.
    """

    def __init__(self, path: Path, format: Format, *, live_id: str = DEFAULT_LIVE) -> None:
        """`live_id` names the live where the file names none. Raises CaptureError."""
        self.path = path
        self.truncated_at: int | None = None
        self.trouble = ""
        self.header = CaptureHeader(TEXT_TOPIC, TEXT_PARTITIONS, 0, "")
        self._read = READERS[format]
        self._live_id = live_id
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise CaptureError(f"cannot read {path}: {error.strerror}") from error

    def __iter__(self) -> Iterator[Entry]:
        self._file.seek(0)
        offsets: dict[int, int] = {}
        empty = True
        try:
            for said in self._read(_lines(self._file)):
                for entry in self._entries(said, offsets):
                    empty = False
                    yield entry
        except BadLine as error:
            raise CaptureError(f"{self.path}, {error}") from error
        except OSError as error:
            raise CaptureError(f"cannot read {self.path}: {error.strerror}") from error
        if empty:
            raise CaptureError(f"{self.path} holds nothing to be spoken")

    def _entries(self, said: Said, offsets: dict[int, int]) -> Iterator[Entry]:
        live_id = said.live_id if said.live_id is not None else self._live_id
        # A line of JSON is one record, as its writer cut it; other text is cut as `push` cuts it.
        whole = self._read is READERS["jsonlines"] or said.kind is not RecordKind.TEXT
        try:
            key = check_live_id(live_id).encode()
            partition = partition_of(key, TEXT_PARTITIONS)
            for text in [said.text] if whole else _pieces(said.text):
                record = TextRecord(said.kind, text, said.seq, said.event_id)
                offset = offsets.get(partition, 0)
                offsets[partition] = offset + 1
                value = encode_text_record(record)
                yield CapturedRecord(TEXT_TOPIC, partition, offset, said.at_ms, key, value)
        except (BadRecord, BadLiveId) as error:
            detail = error.detail if isinstance(error, BadRecord) else str(error)
            raise BadLine(said.line, detail) from error

    def close(self) -> None:
        self._file.close()


def open_entries(
    path: Path, format: Format | None = None, *, live_id: str = DEFAULT_LIVE
) -> CaptureReader | TextReader:
    """The file's reader: `format`, or what its name says. Raises CaptureError."""
    format = format or format_of(path)
    if format == "avro":
        return CaptureReader(path)
    return TextReader(path, format, live_id=live_id)


def read_as_entries(
    path: Path, format: Format | None = None, *, live_id: str = DEFAULT_LIVE
) -> Iterator[Entry]:
    """The entries of a file. Raises CaptureError."""
    with open_entries(path, format, live_id=live_id) as reader:
        yield from reader


def _pieces(text: str) -> list[str]:
    """The text cut into records; the white space at its end stays, for it parts what follows."""
    found = list(records(text))
    if found:
        found[-1] += text[len(text.rstrip()) :]
    return found


def _lines(file: BinaryIO) -> Iterator[Line]:
    """Numbered lines without their ends (LF, CRLF or CR). Raises BadLine."""
    number = 0
    while raw := file.readline(LINE_BYTES_MAX + 1):
        if number == 0:
            if raw.startswith(_UTF16):
                raise BadLine(1, "the file is UTF-16; convert it to UTF-8, for instance with iconv")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if len(raw) > LINE_BYTES_MAX:
            raise BadLine(number + 1, f"longer than {LINE_BYTES_MAX} bytes")
        for part in raw.rstrip(b"\r\n").split(b"\r"):
            number += 1
            try:
                yield number, part.decode("utf-8")
            except UnicodeDecodeError as error:
                raise BadLine(number, f"not UTF-8 at byte {error.start + 1} of the line") from error
