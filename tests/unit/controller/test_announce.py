"""Events go together, in order, and are dropped before they make anything wait."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from controller.announce import ENCODED_AT_ONCE, SENDS_MAX, Announcer
from controller.counters import Counters
from controller.tasks import Tasks
from schemas.events import EventKind, LiveEvent
from schemas.topics import EVENTS_TOPIC
from stream.transport import Headers, Sent
from tests.support.wait import until


class Topic:
    """A producer that answers when it is told to."""

    def __init__(self) -> None:
        self.sends: list[list[str]] = []
        self.open = asyncio.Event()
        self.lost = 0

    async def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Sent:
        raise AssertionError("events go together")

    async def send_all(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> int:
        assert topic == EVENTS_TOPIC
        assert all(key == b"anna" for key, _ in records)
        self.sends.append([LiveEvent.decode(value).event_id for _, value in records])
        await self.open.wait()
        return len(records) - self.lost

    async def close(self) -> None: ...


def event(number: int, **data: str | int) -> LiveEvent:
    return LiveEvent(EventKind.SPEAK_ENDED, f"{number}", "", "anna", "w", 1, 0, data=data)


Make = Callable[..., Announcer]


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    made = Tasks()
    yield made
    await made.close()


@pytest.fixture
def make(tasks: Tasks) -> Make:
    def make(topic: Topic, counters: Counters, waiting_max: int = 100, at_once: int = 10):
        one = Announcer(topic, tasks, counters, waiting_max=waiting_max, at_once=at_once)
        tasks.spawn(one.run(), "events")
        return one

    return make


async def test_what_gathers_meanwhile_goes_together_and_in_order(make: Make) -> None:
    topic, counters = Topic(), Counters()
    announcer = make(topic, counters)
    for number in range(SENDS_MAX):
        announcer.say(event(number))
        await until(lambda sends=number + 1: len(topic.sends) == sends)
    for number in range(SENDS_MAX, SENDS_MAX + 15):
        announcer.say(event(number))
    topic.open.set()
    await announcer.flush(10_000)
    assert [len(send) for send in topic.sends] == [1] * SENDS_MAX + [10, 5]
    sent = [event_id for send in topic.sends for event_id in send]
    assert sent == [str(number) for number in range(SENDS_MAX + 15)]
    assert counters.events_sent == SENDS_MAX + 15
    assert counters.events_dropped == 0


async def test_without_room_an_event_is_refused_and_counted(make: Make) -> None:
    topic, counters = Topic(), Counters()
    announcer = make(topic, counters, waiting_max=3)
    for number in range(3):
        assert not announcer.refuses()
        announcer.say(event(number))
    assert announcer.refuses()
    announcer.say(event(3))
    assert counters.events_dropped == 2
    topic.open.set()
    await announcer.flush(10_000)
    assert not announcer.refuses()


async def test_what_the_broker_did_not_take_counts_as_dropped(make: Make) -> None:
    topic, counters = Topic(), Counters()
    topic.open.set()
    topic.lost = 1
    announcer = make(topic, counters)
    for number in range(4):
        announcer.say(event(number))
    await announcer.flush(10_000)
    assert (counters.events_sent, counters.events_dropped) == (3, 1)


async def test_an_event_that_cannot_be_written_harms_no_other(make: Make) -> None:
    topic, counters = Topic(), Counters()
    topic.open.set()
    announcer = make(topic, counters)
    announcer.say(event(1, text="x" * 100_000))
    announcer.say(event(2))
    await announcer.flush(10_000)
    assert topic.sends == [["2"]]
    assert (counters.events_sent, counters.events_dropped) == (1, 1)


async def test_others_have_their_turn_while_many_are_encoded(make: Make) -> None:
    topic, counters = Topic(), Counters()
    topic.open.set()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while not topic.sends:
            turns += 1
            await asyncio.sleep(0)

    few, many = 3, 8 * ENCODED_AT_ONCE
    announcer = make(topic, counters, waiting_max=many + few, at_once=many)
    for number in range(many + few):
        announcer.say(event(number))
    watching = asyncio.ensure_future(others())
    await announcer.flush(10_000)
    await watching
    assert turns >= 8
    sent = [event_id for send in topic.sends for event_id in send]
    assert sent == [str(number) for number in range(many + few)], "few do not overtake many"
