import pytest

from gpu_stages.control import (
    LINE_BYTES_MAX,
    BadControlLine,
    Dumped,
    LineReader,
    Ping,
    Plan,
    Pong,
    Ready,
    SegmentNotMade,
    Stop,
    decode_line,
    encode_line,
)

PLAN = Plan(
    stage="render",
    class_path="a:B",
    device="cpu",
    settings={"sizes": [[256, 256]]},
    batch_max=None,
    wait_us_max=5,
    threads=1,
    nice=0,
    parent_pid=1,
    table_fd=3,
    bell_fd=4,
    incoming={"kind": "host", "memory_fd": 5},
    outgoing={"kind": "host", "memory_fd": 6},
)
MESSAGES = [
    PLAN,
    Ping(3),
    Pong(3, {"messages": 2.0}),
    Ready(120, True),
    Stop(),
    Dumped({"pending": {"1": 2}}),
    SegmentNotMade(1, 2, 2**64 - 1, "no\nvoice"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_as_it_was(message: Ping) -> None:
    line = encode_line(message)
    assert line.count(b"\n") == 1
    assert decode_line(line) == message


@pytest.mark.parametrize("chunk", [1, 7, 100, 10_000])
def test_a_stream_may_be_cut_anywhere(chunk: int) -> None:
    stream = b"".join(map(encode_line, MESSAGES))
    reader = LineReader()
    heard = [m for at in range(0, len(stream), chunk) for m in reader.feed(stream[at : at + chunk])]
    assert heard == MESSAGES


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"3", b'{"type": "Nothing"}', b'{"type": "Ping"}', b'{"type": ["Ping"]}'],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(BadControlLine):
        decode_line(line)


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    reader = LineReader()
    with pytest.raises(BadControlLine, match="more than"):
        reader.feed(b"x" * (LINE_BYTES_MAX + 1))
