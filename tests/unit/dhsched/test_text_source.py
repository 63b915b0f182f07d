"""Text is cut into records that fit, and bad sources say what is wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhsched.output import CommandFailed
from dhsched.text_source import RECORD_BYTES, bundled_script, read_text, records
from schemas.text_record import RecordKind, TextRecord, decode_text_record, encode_text_record

TEXTS = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=4000)


@given(TEXTS)
def test_records_fit_and_join_to_the_text(text: str) -> None:
    pieces = list(records(text))
    spoken = "".join(char for char in text if char.isprintable() or char in "\n\t").strip()
    assert "".join(pieces).rstrip() == spoken
    assert all(len(piece.encode()) <= RECORD_BYTES for piece in pieces)


@given(st.text(alphabet="ab ü漢\n", min_size=1, max_size=3000))
def test_every_record_is_accepted_by_the_decoder(text: str) -> None:
    for piece in records(text):
        if piece.strip():
            record = TextRecord(kind=RecordKind.TEXT, text=piece)
            assert decode_text_record(encode_text_record(record)).text == piece


def test_words_are_not_cut_where_there_is_white_space() -> None:
    text = "seventeen " * 300
    for piece in records(text):
        assert set(piece.split()) == {"seventeen"}


def test_a_word_longer_than_a_record_is_cut() -> None:
    pieces = list(records("x" * (RECORD_BYTES * 2 + 5)))
    assert [len(piece) for piece in pieces] == [RECORD_BYTES, RECORD_BYTES, 5]


def test_the_bundled_script_says_something() -> None:
    assert len(list(records(bundled_script()))) >= 1


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfHello")
    assert read_text(str(path)) == "Hello"


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "no text"), (b" \n\t ", "no text"), (b"ok \xff", "not UTF-8 at byte 3")],
)
def test_a_file_that_cannot_be_spoken_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(CommandFailed, match=says) as refused:
        read_text(str(path))
    assert refused.value.exit_status == 2


def test_a_missing_file_is_named() -> None:
    with pytest.raises(CommandFailed, match="/no/such/file"):
        read_text("/no/such/file")
