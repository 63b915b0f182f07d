"""What a book of unowned records keeps, and how far it lets the watermark go."""

from controller.unowned import UnownedBook
from stream.transport import KafkaRecord, LogRecord


def record(offset: int) -> KafkaRecord:
    return LogRecord("dhsched.text", 0, offset, b"anna", b"{}", (), 1_800_000_000_000)


def polled(book: UnownedBook, *offsets: int) -> None:
    """As the custodian takes them, where nobody here owns their live."""
    book.take([record(offset) for offset in offsets], list)


def test_a_disposal_that_was_begun_does_not_hide_what_lies_before_it() -> None:
    book = UnownedBook(0, [(4, "bob")])
    polled(book, 0, 1, 4, 5)
    assert [one.offset for one in book.waiting] == [0, 1, 4, 5]
    assert book.low == 0, "the watermark must not pass what was not looked at"


def test_polls_follow_each_other_in_order() -> None:
    book = UnownedBook(0, [(2, "bob"), (7, "bob")])
    polled(book, 2)
    polled(book, 3, 5)
    polled(book, 6, 7, 8)
    assert [one.offset for one in book.waiting] == [2, 3, 5, 6, 7, 8]
    assert book.low == 2
