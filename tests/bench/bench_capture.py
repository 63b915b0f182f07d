"""Reading a capture, beside bare fastavro reading the same file.

`capture_decode_fence_vs_fastavro`: the capture is read, its records are decoded, gathered into
segments by the session machine and released under the fence, by commits to the memory store, as
`tests.bench.fenced_reading` says. Bare fastavro reads the same records of the same file: the
container by its reader, each value by its schemaless_reader; `container_ratio` is the ratio to the
container alone, whose values nobody looks at. All in one process, in turns; best of the rounds, in
seconds of this process's CPU.
"""

import asyncio
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import fastavro

from dhsched.offline.capture_file import CaptureReader, CaptureWriter
from dhsched.offline.entries import CapturedRecord, CaptureHeader, Entry
from schemas.registry import versions
from schemas.single_object import HEADER_BYTES
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import TEXT_TOPIC
from tests.bench.fenced_reading import Ring, read_fenced
from tests.bench.figures import Row, row

ROUNDS = 5
RECORDS = 20_000
LIVES = 8
START_MS = 1_764_000_000_000
# What a person dictates, and what a language model streams.
SENTENCE = "A sentence of the length that people write, and then some more of it. "
TOKENS = (*(["word "] * 11), "end. ")


def rows() -> list[Row]:
    """Records per second of one core."""
    with tempfile.TemporaryDirectory(prefix="bench-capture-") as folder:
        tokens = _capture(Path(folder) / "tokens.avro", TOKENS)
        sentences = _capture(Path(folder) / "sentences.avro", (SENTENCE,))
        return [
            _measured("capture_decode_fence_vs_fastavro", tokens),
            _measured("capture_decode_fence_vs_fastavro_sentence", sentences),
            _read_only(tokens),
        ]


def _capture(path: Path, texts: tuple[str, ...]) -> Path:
    header = CaptureHeader(TEXT_TOPIC, 1, START_MS, "bench")
    with CaptureWriter(path, header, codec="null") as writer:
        for offset in range(RECORDS):
            turn, live = divmod(offset, LIVES)
            last = offset >= RECORDS - LIVES
            kind = RecordKind.END_TURN if last else RecordKind.TEXT
            text = "" if last else texts[turn % len(texts)]
            value = encode_text_record(
                TextRecord(kind, text, turn, f"01MCC5RM0060Z63KE{offset:09}", START_MS)
            )
            writer.write(
                CapturedRecord(TEXT_TOPIC, 0, offset, START_MS + offset, _key(live), value)
            )
        writer.commit()
    return path


def _key(live: int) -> bytes:
    return f"bench-live-{live}".encode()


def _measured(name: str, path: Path) -> Row:
    rings: list[Ring] = []
    times = [
        (
            _took_s(lambda: rings.append(_fenced(path))),
            _took_s(lambda: _bare_values(path)),
            _took_s(lambda: _bare(path)),
        )
        for _ in range(ROUNDS)
    ]
    ours_s, bare_s, container_s = (min(times) for times in zip(*times, strict=True))
    return row(
        name,
        RECORDS / ours_s,
        "records/s",
        "bare fastavro reading the same file and its values",
        RECORDS / bare_s,
        container_ratio=round(container_s / ours_s, 3),
        records_per_segment=round(RECORDS / rings[0].segments, 1),
    )


def _read_only(path: Path) -> Row:
    pairs = [(_took_s(lambda: _entries(path)), _took_s(lambda: _bare(path))) for _ in range(ROUNDS)]
    ours_s, bare_s = (min(times) for times in zip(*pairs, strict=True))
    return row(
        "capture_read_vs_fastavro",
        RECORDS / ours_s,
        "records/s",
        "bare fastavro.reader of the same file",
        RECORDS / bare_s,
    )


def _took_s(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _bare(path: Path) -> None:
    with path.open("rb") as file:
        for _ in fastavro.reader(file):
            pass


def _bare_values(path: Path) -> None:
    schema = cast(Any, versions("text_record")[-1].parsed)
    with path.open("rb") as file:
        for found in fastavro.reader(file):
            value = cast("dict[str, Any]", found)["value"]
            fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), schema, None)


def _entries(path: Path) -> None:
    with CaptureReader(path) as reader:
        for _ in reader:
            pass


def _fenced(path: Path) -> Ring:
    with CaptureReader(path) as reader:
        lives = [_key(live).decode() for live in range(LIVES)]
        return asyncio.run(read_fenced(map(_record, reader), lives))


def _record(entry: Entry) -> CapturedRecord:
    assert isinstance(entry, CapturedRecord)
    return entry
