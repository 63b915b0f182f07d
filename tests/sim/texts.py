"""The records that clients produce. Each text is unlike every other of its live."""

from functools import lru_cache
from random import Random

from schemas.text_record import RecordKind, TextRecord, encode_text_record

BAD_VALUES = (None, b"", b"not a record", b"\xc3\x01short", b'{"text": "   "}', b'{"txet": "x"}')

LONG_ENDING = " went on and on about the long way home that takes more than a checkpoint to tell. "
"""Spoken for longer than a checkpoint interval of a run, so that a crash may come in the middle."""


@lru_cache(maxsize=32_768)
def text_value(text: str, seq: int | None) -> bytes:
    """Encoded once for all runs."""
    if seq is None and text.endswith("ok. "):
        return f'{{"text": "{text}"}}'.encode()
    return encode_text_record(TextRecord(RecordKind.TEXT, text, seq))


@lru_cache(maxsize=64)
def mark_value(kind: RecordKind) -> bytes:
    return encode_text_record(TextRecord(kind))


class Author:
    """Writes the records of one live: sentences, streams of words, repeats, ends of turns."""

    def __init__(self, live_id: str, *, numbers: bool) -> None:
        self.live_id = live_id
        self.numbers = numbers
        """Whether it numbers its records. Numbers are compared within one life of a live only, so a
        repeat that falls between two lives is new text to the second; the texts of lives that are
        made anew go without, because the checkers tell texts apart."""
        self.count = 0
        self.seq = 0

    def next_text(self, ending: str) -> str:
        self.count += 1
        return f"{self.live_id}{self.count}{ending}"

    def burst(self, records: int, rng: Random) -> list[bytes | None]:
        """The values of about so many records."""
        values: list[bytes | None] = []
        numbered = rng.random() < 0.4 and self.numbers
        while len(values) < records:
            chance = rng.random()
            if chance < 0.5:
                ending = " go. " if chance < 0.3 else " ok. "
                if chance < 0.03:
                    ending = LONG_ENDING
                elif chance < 0.1:
                    ending = f" is. Then {self.live_id}x{self.count} was. "
                values += self._text(ending, numbered, rng)
            elif chance < 0.84:
                for at in range(words := 2 + (chance > 0.7)):
                    values += self._text(" " if at + 1 < words else ". ", numbered, rng)
            elif chance < 0.92:
                values.append(mark_value(RecordKind.END_TURN))
            else:
                values.append(rng.choice(BAD_VALUES))
        return values

    def _text(self, ending: str, numbered: bool, rng: Random) -> list[bytes]:
        text = self.next_text(ending)
        if not numbered:
            return [text_value(text, None)]
        self.seq += 1
        value = text_value(text, self.seq)
        # A producer that heard no answer sends again; the number lets the repeat be known.
        return [value, value] if rng.random() < 0.15 else [value]
