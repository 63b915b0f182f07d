"""How far a live was read: nothing twice, nothing left out, interrupts at once."""

from hypothesis import given
from hypothesis import strategies as st

from controller.read_ahead import Look, ReadAhead
from schemas.text_record import RecordKind, TextRecord


def text(seq: int | None = None) -> TextRecord:
    return TextRecord(RecordKind.TEXT, "a", seq)


INTERRUPT = TextRecord(RecordKind.INTERRUPT)
CLOSE = TextRecord(RecordKind.CLOSE)


def test_the_main_reading_is_kept_in_order() -> None:
    ahead = ReadAhead(5, 5, None)
    ahead.attached = True
    ahead.begin(5)
    assert ahead.look(7, text(), True) is Look.KEEP
    assert ahead.look(7, text(), True) is Look.PASS
    assert ahead.look(4, text(), True) is Look.PASS
    ahead.end(9)
    assert (ahead.kept_to, ahead.scanned_to, ahead.holed) == (9, 9, False)


def test_without_room_there_is_a_hole_that_is_filled_in_order() -> None:
    ahead = ReadAhead(0, 0, None)
    ahead.attached = True
    ahead.begin(0)
    assert ahead.look(0, text(), True) is Look.KEEP
    assert ahead.look(1, text(), False) is Look.PASS
    assert ahead.look(2, text(), True) is Look.PASS, "nothing goes ahead of the hole"
    ahead.end(3)
    assert ahead.wanted_from == 1
    ahead.begin(1)
    assert ahead.look(1, text(), True) is Look.KEEP
    assert ahead.look(2, text(), False) is Look.PASS
    ahead.end(3)
    assert ahead.wanted_from == 2
    ahead.begin(2)
    assert ahead.look(2, text(), True) is Look.KEEP
    ahead.end(3)
    assert ahead.wanted_from is None


def test_a_batch_that_begins_behind_the_hole_fills_nothing() -> None:
    ahead = ReadAhead(0, 0, None)
    ahead.attached = True
    ahead.begin(0)
    ahead.look(0, text(), False)
    ahead.look(1, text(), False)
    ahead.end(2)
    ahead.begin(1)
    assert ahead.look(1, text(), True) is Look.PASS
    ahead.end(2)
    assert ahead.kept_to == 0


def test_an_interrupt_is_seen_through_a_hole_and_closes_it() -> None:
    ahead = ReadAhead(0, 0, None)
    ahead.attached = True
    ahead.begin(0)
    ahead.look(0, text(4), False)
    assert ahead.look(1, INTERRUPT, False) is Look.INTERRUPT
    assert ahead.last_seq == 4
    assert ahead.look(2, text(), True) is Look.KEEP
    ahead.end(3)
    assert (ahead.kept_to, ahead.holed) == (3, False)


def test_an_interrupt_is_taken_once() -> None:
    ahead = ReadAhead(0, 0, None)
    ahead.attached = True
    for _ in range(2):
        ahead.begin(0)
        look = ahead.look(1, INTERRUPT, True)
        ahead.end(2)
    assert look is Look.PASS


def test_nothing_overtakes_a_close() -> None:
    ahead = ReadAhead(0, 0, None)
    ahead.attached = True
    ahead.begin(0)
    assert ahead.look(0, CLOSE, True) is Look.KEEP
    assert ahead.look(1, INTERRUPT, True) is Look.PASS
    assert ahead.look(2, text(), True) is Look.PASS
    ahead.end(3)


def test_a_close_in_a_hole_holds_an_interrupt_back() -> None:
    ahead = ReadAhead(0, 0, None)
    ahead.attached = True
    ahead.begin(0)
    ahead.look(0, text(), False)
    ahead.look(1, CLOSE, False)
    assert ahead.look(2, INTERRUPT, False) is Look.PASS
    ahead.end(3)
    ahead.begin(0)
    assert [ahead.look(at, one, True) for at, one in enumerate([text(), CLOSE, INTERRUPT])] == [
        Look.KEEP,
        Look.KEEP,
        Look.PASS,
    ]


def test_duplicates_are_told_by_seq() -> None:
    ahead = ReadAhead(10, 10, last_seq=3)
    ahead.attached = True
    ahead.begin(10)
    looks = [ahead.look(10 + at, text(seq), True) for at, seq in enumerate([3, 4, 4, None, 5, 2])]
    keep, twice = Look.KEEP, Look.DUPLICATE
    assert looks == [twice, keep, twice, keep, keep, twice]


def test_below_the_cursor_everything_is_read_whatever_its_seq() -> None:
    ahead = ReadAhead(5, 8, last_seq=9)
    ahead.begin(5)
    assert ahead.look(5, text(8), False) is Look.KEEP, "the segment begins with it"
    assert ahead.look(6, text(8), False) is Look.DUPLICATE
    assert ahead.look(7, text(9), False) is Look.KEEP
    assert ahead.look(8, text(9), True) is Look.DUPLICATE
    assert ahead.look(9, text(10), True) is Look.KEEP


@st.composite
def streams(draw: st.DrawFn) -> list[TextRecord | None]:
    kinds = draw(st.lists(st.integers(0, 9), min_size=1, max_size=60))
    stream: list[TextRecord | None] = []
    for kind in kinds:
        seq = draw(st.none() | st.integers(0, 30))
        if kind == 0:
            stream.append(None)
        elif kind == 1:
            stream.append(TextRecord(RecordKind.INTERRUPT, seq=seq))
        else:
            stream.append(text(seq))
    return stream


def decide(stream: list[TextRecord | None]) -> tuple[list[int], list[int]]:
    """(offsets of duplicates, offsets of interrupts), by the rule alone."""
    last, twice, interrupts = -1, [], []
    for offset, record in enumerate(stream):
        if record is None:
            continue
        if record.seq is not None and record.seq <= last:
            twice.append(offset)
            continue
        last = last if record.seq is None else record.seq
        if record.kind is RecordKind.INTERRUPT:
            interrupts.append(offset)
    return twice, interrupts


@given(stream=streams(), data=st.data())
def test_every_record_once_in_order_whatever_room_there_is(
    stream: list[TextRecord | None], data: st.DataObject
) -> None:
    """Main reading in batches, rereading between: kept is the rest after interrupts."""
    ahead = ReadAhead(0, 0, None)
    ahead.attached = True
    kept: list[int] = []
    twice, interrupts = decide(stream)
    found_twice: list[int] = []
    found_interrupts: list[int] = []
    position = 0

    def batch(begin: int, end: int, room: int) -> None:
        ahead.begin(begin)
        for offset in range(begin, end):
            look = ahead.look(offset, stream[offset], room > 0)
            if look in (Look.KEEP, Look.DUPLICATE):
                kept.append(offset)
                room -= 1
            if look is Look.DUPLICATE:
                found_twice.append(offset)
            if look is Look.INTERRUPT:
                found_interrupts.append(offset)
        ahead.end(end)

    while position < len(stream):
        size = data.draw(st.integers(1, 7))
        end = min(len(stream), position + size)
        batch(position, end, data.draw(st.integers(0, 5)))
        position = end
        if ahead.holed and data.draw(st.booleans()):
            begin = ahead.kept_to - data.draw(st.integers(0, 2))
            batch(max(0, begin), position, data.draw(st.integers(0, 5)))
    while ahead.holed:
        batch(ahead.kept_to, position, 3)
    assert found_interrupts == interrupts
    assert kept == sorted(set(kept)), "in order, none twice"
    last = interrupts[-1] if interrupts else -1
    assert [offset for offset in kept if offset > last] == list(range(last + 1, len(stream)))
    assert [one for one in found_twice if one > last] == [one for one in twice if one > last]
