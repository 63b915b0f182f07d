"""A live's story: all of its events in order, nobody else's, and never half of them."""

import json
from typing import Any

import pytest

import dhsched.story
from dhsched.output import CommandFailed, Output
from dhsched.story import tell_story
from schemas.events import EventKind, LiveEvent
from schemas.topics import EVENTS_TOPIC
from stream.memory import MemoryRangeReader, MemoryTransport
from stream.memory_broker import MemoryBroker
from stream.topics import default_topics
from stream.transport import KafkaRecord


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    made = MemoryBroker()
    monkeypatch.setattr(dhsched.story, "AiokafkaTransport", lambda _: MemoryTransport(made))
    await MemoryTransport(made).ensure_topics(default_topics(text_partitions=4))
    return made


async def tell(
    broker: MemoryBroker, live_id: str, kind: EventKind, at_ms: int, **data: Any
) -> None:
    event = LiveEvent(kind, f"e{at_ms}", "", live_id, "w1", 1, at_ms, None, data)
    producer = await MemoryTransport(broker).producer()
    await producer.send(EVENTS_TOPIC, key=live_id.encode(), value=event.encode())


async def test_a_story_is_the_lives_own_events_in_their_order(
    broker: MemoryBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [f"other-{n}" for n in range(40)]
    for at_ms, kind in enumerate((EventKind.GENERATION_COMMITTED, EventKind.CLAIMED)):
        await tell(broker, "anna", kind, at_ms, cause="created")
        for other in others:
            await tell(broker, other, kind, at_ms)
    await tell_story("anna", "kafka:9092", Output.make(as_json=True))
    story = json.loads(capsys.readouterr().out)["story"]
    assert [one["kind"] for one in story] == ["generation_committed", "claimed"]
    assert {one["live_id"] for one in story} == {"anna"}
    assert story[0]["data"] == {"cause": "created"}
    assert story[1]["time"] == "1970-01-01T00:00:00.001+00:00"


async def test_a_live_of_which_nothing_is_known_is_said(broker: MemoryBroker) -> None:
    await tell(broker, "anna", EventKind.CLAIMED, 1)
    with pytest.raises(CommandFailed, match="nothing of a live 'bert'"):
        await tell_story("bert", "kafka:9092", Output.make(as_json=True))


async def test_a_log_that_cannot_be_read_to_its_end_is_no_story(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for at_ms in range(3):
        await tell(broker, "anna", EventKind.CLAIMED, at_ms)
    whole = MemoryRangeReader.read

    async def first_only(
        self: MemoryRangeReader, partition: int, from_offset: int, **bounds: int
    ) -> list[KafkaRecord]:
        if from_offset:
            return []
        return await whole(self, partition, 0, records_max=1, timeout_ms=bounds["timeout_ms"])

    monkeypatch.setattr(MemoryRangeReader, "read", first_only)
    with pytest.raises(CommandFailed, match="ends at 3, but nothing came from 1 on in 10 s"):
        await tell_story("anna", "kafka:9092", Output.make(as_json=True))
    assert capsys.readouterr().out == ""
