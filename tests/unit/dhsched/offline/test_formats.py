"""JSON lines, subtitles and plain text as entries; what is wrong is said with its line."""

from pathlib import Path

import pytest

from dhsched.offline.capture_file import CaptureError
from dhsched.offline.entries import CapturedRecord
from dhsched.offline.formats import Format, format_of, open_entries, read_as_entries
from schemas.partition import partition_of
from schemas.text_record import RecordKind, decode_text_record
from schemas.topics import TEXT_PARTITIONS
from tests.unit.dhsched.offline.captures import record, write

Told = list[tuple[int, str, str]]


def told(path: Path, format: Format | None = None) -> Told:
    """(at, live, what) of every record; a kind other than text stands in angle brackets."""
    found: Told = []
    for entry in read_as_entries(path, format):
        assert isinstance(entry, CapturedRecord)
        said = decode_text_record(entry.value)
        text = said.text if said.kind is RecordKind.TEXT else f"<{said.kind.value}>"
        assert entry.key is not None
        assert entry.partition == partition_of(entry.key, TEXT_PARTITIONS)
        found.append((entry.timestamp_ms, entry.key.decode(), text))
    return found


def made(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# -- JSON lines


def test_json_lines(tmp_path: Path) -> None:
    path = made(
        tmp_path,
        "a.jsonl",
        '{"live": "a", "text": "Hello ", "at": 0.5}\n'
        "\n"
        '{"live": "b", "text": "Grüße 🙂", "at": 0.25, "seq": 7, "event_id": "x"}\n'
        '{"live": "a", "kind": "INTERRUPT", "at": 2}\n'
        '{"live": "a", "text": "again"}\n'
        '{"kind": "end_turn"}',
    )
    assert told(path) == [
        (500, "a", "Hello "),
        (250, "b", "Grüße 🙂"),
        (2000, "a", "<interrupt>"),
        (2000, "a", "again"),
        (2000, "replay", "<end_turn>"),
    ]
    entries = [entry for entry in read_as_entries(path) if isinstance(entry, CapturedRecord)]
    assert [entry.offset for entry in entries if entry.key == b"a"] == [0, 1, 2]
    assert decode_text_record(entries[1].value).seq == 7
    assert decode_text_record(entries[1].value).event_id == "x"


def test_moments_become_unix_time(tmp_path: Path) -> None:
    path = made(
        tmp_path,
        "a.jsonl",
        '{"text": "a", "at": "1970-01-01T00:00:01.5Z"}\r\n'
        '{"text": "b", "at": "1970-01-01T02:00:02+02:00"}\r\n'
        '{"text": "c", "at": "1970-01-01T00:00:03"}\r\n',
    )
    assert [at for at, _, _ in told(path)] == [1500, 2000, 3000]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hello", "not JSON"),
        ('["a"]', "not a JSON object"),
        ('{"text": "a", "txt": 1}', "unknown name 'txt'"),
        ('{"text": 1}', '"text" is not a string'),
        ('{"live": 1, "text": "a"}', '"live" is not a string'),
        ('{"live": "", "text": "a"}', "1 to 128 bytes"),
        ('{"text": "a", "at": -1}', "neither seconds"),
        ('{"text": "a", "at": true}', "neither seconds"),
        ('{"text": "a", "at": NaN}', "neither seconds"),
        ('{"text": "a", "at": [1]}', "neither seconds"),
        ('{"text": "a", "at": "noon"}', "no moment"),
        ('{"text": "a", "at": 0.1}', "lies before that of an earlier line"),
        ('{"text": "a", "at": "2026-11-29T10:00:00Z"}', "moment in some lines and seconds"),
        ('{"text": "a", "kind": "sing"}', "there is no kind 'sing'"),
        ('{"text": "a", "kind": "close"}', "a text in a record of kind close"),
        ('{"text": " "}', "nothing to speak"),
        ('{"text": "\\u0007"}', "U+0007"),
        ('{"text": "a", "seq": 1.5}', '"seq" is not an integer'),
        ('{"text": "a", "seq": -1}', "seq is -1"),
        ('{"text": "a", "text": "b"}', "a name comes twice"),
        ("[" * 100_000, "not JSON"),
        ('{"text": "' + "x" * 20_000 + '"}', "16384 bytes"),
        ('{"text": "' + "x" * 300_000 + '"}', "longer than"),
    ],
)
def test_bad_json_lines_are_named(tmp_path: Path, line: str, said: str) -> None:
    path = made(tmp_path, "a.jsonl", '{"text": "first", "at": 1}\n\n' + line + "\n")
    with pytest.raises(CaptureError, match=r"a\.jsonl, line 3: ") as error:
        told(path)
    assert said in str(error.value)


# -- subtitles

VTT = """WEBVTT - A title
Kind: captions

NOTE
This is a comment --> with an arrow

STYLE
::cue { color: lime }

intro
00:01.000 --> 00:02.500 align:start position:10%
<v Roger>Hello &amp; <i>welcome</i>

00:03.000 --> 00:04.000
to the
show<00:03.500> now.

01:00:00.250 --> 01:00:01.000
<c.loud></c>
"""


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_webvtt(tmp_path: Path, end: str, bom: bytes) -> None:
    path = made(tmp_path, "a.vtt", bom + VTT.replace("\n", end).encode())
    assert told(path) == [
        (1000, "replay", "Hello & welcome "),
        (3000, "replay", "to the show now. "),
        (3_601_000, "replay", "<end_turn>"),
    ]


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        ("00:01.000 --> 00:02.000\nHi\n", 1, "begins with the line WEBVTT"),
        ("WEBVTTX\n", 1, "begins with the line WEBVTT"),
        ("", 1, "begins with the line WEBVTT"),
        ("WEBVTT\n\nHi\n", 3, "without its line of times"),
        ("WEBVTT\n\n1\n00:01,000 --> 00:02,000\nHi\n", 4, "are no times"),
        ("WEBVTT\n\n00:61.000 --> 01:02.000\nHi\n", 3, "are no times"),
        ("WEBVTT\n\n00:03.000 --> 00:02.000\nHi\n", 3, "ends before it begins"),
        (
            "WEBVTT\n\n00:03.000 --> 00:04.000\nHi\n\n00:02.000 --> 00:04.000\nHo\n",
            6,
            "begins before the one before it",
        ),
    ],
)
def test_bad_webvtt_is_named(tmp_path: Path, content: str, line: int, said: str) -> None:
    with pytest.raises(CaptureError, match=f"line {line}: .*{said}"):
        told(made(tmp_path, "a.vtt", content))


def test_srt(tmp_path: Path) -> None:
    path = made(
        tmp_path,
        "a.srt",
        "1\r\n00:00:01,000 --> 00:00:02,500\r\n<b>Hello</b> {\\an8}there,\r\nyou.\r\n\r\n"
        "2\r\n00:00:03,5 --> 00:00:04,000 X1:10\r\nBye.\r\n",
    )
    assert told(path) == [
        (1000, "replay", "Hello there, you. "),
        (3005, "replay", "Bye. "),
        (4000, "replay", "<end_turn>"),
    ]


def test_a_long_cue_becomes_several_records(tmp_path: Path) -> None:
    words = "word " * 1_000
    path = made(tmp_path, "a.srt", f"1\n00:00:01,000 --> 00:00:02,000\n{words}\n")
    *pieces, end = told(path)
    assert len(pieces) > 4
    assert {at for at, _, _ in pieces} == {1000}
    assert "".join(text for _, _, text in pieces) == words
    assert end == (2000, "replay", "<end_turn>")


# -- plain text


def test_plain_text(tmp_path: Path) -> None:
    path = made(tmp_path, "a.txt", "\ufeffA title\n\nOne line\nand another.\r\n\r\n\r\nEnd")
    assert told(path) == [
        (0, "replay", "A title\n\n"),
        (0, "replay", "One line\nand another.\n\n"),
        (0, "replay", "End\n\n"),
        (0, "replay", "<end_turn>"),
    ]


def test_a_byte_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = made(tmp_path, "a.txt", b"One\nTwo \xff\n")
    with pytest.raises(CaptureError, match="line 2: not UTF-8 at byte 5"):
        told(path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_named(tmp_path: Path, encoding: str) -> None:
    path = made(tmp_path, "a.txt", "\ufeffHello".encode(encoding))
    with pytest.raises(CaptureError, match="UTF-16"):
        told(path)


# -- all of them


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", ""),
        ("a.jsonl", "\n \n"),
        ("a.txt", "\ufeff\n\n"),
        ("a.srt", ""),
        ("a.vtt", "WEBVTT\n"),
    ],
)
def test_nothing_to_be_spoken_is_an_error(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(CaptureError, match="holds nothing to be spoken"):
        told(made(tmp_path, name, content))


def test_the_format_is_that_of_the_name_unless_given(tmp_path: Path) -> None:
    assert format_of(Path("a.AVRO")) == "avro"
    assert format_of(Path("a.avro.part")) == "avro"
    with pytest.raises(CaptureError, match="use --format"):
        format_of(Path("a.docx"))
    assert told(made(tmp_path, "a.docx", "Hello."), "text")[0][2] == "Hello.\n\n"


def test_a_capture_is_read_like_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", [record(1), record(2)])
    assert list(read_as_entries(path)) == [record(1), record(2)]
    with open_entries(path) as reader:
        assert list(reader) == list(reader)
        assert reader.header.partition_count == 4


def test_a_reading_may_be_repeated_and_a_missing_file_is_named(tmp_path: Path) -> None:
    path = made(tmp_path, "a.txt", "Hello.")
    with open_entries(path, live_id="me") as reader:
        first = list(reader)
        assert first == list(reader)
        assert isinstance(first[0], CapturedRecord)
        assert first[0].key == b"me"
        assert reader.truncated_at is None
    with pytest.raises(CaptureError, match="No such file"):
        open_entries(tmp_path / "b.txt")
