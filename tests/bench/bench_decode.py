"""Reading a text record as a worker does, beside bare fastavro reading the same body.

Ours reads hostile bytes: it also looks at the framing, the fingerprint, every length and every
character, and makes the record. Both take the same records in turns; best of the rounds.
"""

import io
import time
from collections.abc import Callable
from typing import Any, cast

import fastavro

from schemas.registry import versions
from schemas.single_object import split
from schemas.text_record import RecordKind, TextRecord, decode_text_record, encode_text_record
from tests.bench.figures import Row, row

ROUNDS = 9
RECORDS = 2_000
WORD = "word "
SENTENCE = "A sentence of the length that people write, and then some more of it. "
PAGE = SENTENCE * 100


def rows() -> list[Row]:
    """Records per second of one core, for what a token stream, a person and a script write."""
    return [
        _measured("decode_vs_fastavro", SENTENCE, RECORDS),
        _measured("decode_vs_fastavro_word", WORD, RECORDS),
        _measured("decode_vs_fastavro_page", PAGE, RECORDS // 10),
    ]


def _measured(name: str, text: str, records: int) -> Row:
    record = TextRecord(RecordKind.TEXT, text, 7, "01MCC5RM0060Z63KE4QE3C69RG", 1_764_000_000_000)
    value = encode_text_record(record)
    _, body = split(value)
    schema = cast(Any, versions("text_record")[-1].parsed)
    fastavro.schemaless_reader(io.BytesIO(body), schema, None)

    def ours() -> None:
        for _ in range(records):
            decode_text_record(value)

    def bare() -> None:
        for _ in range(records):
            fastavro.schemaless_reader(io.BytesIO(body), schema, None)

    pairs = [(_took_s(ours), _took_s(bare)) for _ in range(ROUNDS)]
    ours_s, bare_s = (min(times) for times in zip(*pairs, strict=True))
    return row(
        name,
        records / ours_s,
        "records/s",
        "bare fastavro.schemaless_reader of the body",
        records / bare_s,
        text_bytes=len(text),
    )


def _took_s(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
