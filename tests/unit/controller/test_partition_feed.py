"""What a live that ends in the middle of a batch leaves to others."""

from controller.counters import Counters
from controller.events import Event, InterruptSeen, RecordsRead
from controller.partition_feed import PartitionFeed, Route, Source
from controller.records import Decoder
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from stream.transport import KafkaRecord, LogRecord


class Live:
    """Has nothing unreleased, and ends with the first records that it is given, as one does that
    finds the CLOSE of an earlier owner released."""

    def __init__(self, feed: PartitionFeed) -> None:
        self.live_id = "anna"
        self.room = (100, 1_000)
        self.roomy = True
        self.first_unreleased: int | None = None
        self.left: int | None = -1
        self.got: list[Event] = []
        self._feed = feed

    def post(self, event: Event) -> None:
        self.got.append(event)
        route = self._feed.remove(self.live_id, self)
        if route is not None:
            self.left = route.low


def record(offset: int, kind: RecordKind, text: str = "") -> KafkaRecord:
    return LogRecord("t", 0, offset, b"anna", encode_text_record(TextRecord(kind, text)), (), 0)


def feed_with_live(position: int) -> tuple[PartitionFeed, Live]:
    feed = PartitionFeed(0, Decoder(), Counters())
    feed.restart(Source.CUSTODY, position)
    live = Live(feed)
    feed.add(Route(live, 0, 0, None))
    return feed, live


RECORDS = [
    record(0, RecordKind.TEXT, "One. "),
    record(1, RecordKind.INTERRUPT),
    record(2, RecordKind.TEXT, "Two. "),
]


def test_an_interrupt_that_its_live_did_not_live_to_see_is_left_to_others() -> None:
    feed, live = feed_with_live(0)
    feed.route(RECORDS)
    assert isinstance(live.got[0], RecordsRead)
    assert live.left == 1
    assert feed.position == 3, "a custodian notes what lies from 1 to 2"


def test_the_same_where_the_log_is_read_again() -> None:
    feed, live = feed_with_live(3)
    feed.route_again(0, 3, RECORDS)
    assert isinstance(live.got[0], RecordsRead)
    assert live.left == 1


def test_an_interrupt_that_was_seen_is_the_lives_own() -> None:
    feed, live = feed_with_live(0)
    live.post = live.got.append  # type: ignore[method-assign]
    feed.route(RECORDS)
    assert [type(one) for one in live.got] == [RecordsRead, InterruptSeen, RecordsRead]
    assert feed.routes[b"anna"].low is None
