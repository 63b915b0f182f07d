"""How the producer over aiokafka names the outcome of a send, and when it is made anew."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import errors as kafka_errors
from aiokafka.structs import RecordMetadata, TopicPartition

from stream import aiokafka_producer
from stream.aiokafka_producer import AiokafkaProducer
from stream.settings import KafkaSettings
from stream.transport import BrokerAway, SendRefused, SendUnknown, Sent, UnknownTopic
from tests.support.wait import until

SETTINGS = KafkaSettings("127.0.0.1:1", send_timeout_ms=100)
HANGS = "hangs"


@dataclass
class Script:
    """What aiokafka's producers will do: one list for `send` itself, one for its future."""

    accepting: list[Any] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    pending: "list[asyncio.Future[Any]]" = field(default_factory=list)
    made: int = 0
    stopped: list[int] = field(default_factory=list)
    starting: list[Any] = field(default_factory=list)


class FakeProducer:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.number = script.made

    async def send(self, topic: str, value: bytes, **options: Any) -> "asyncio.Future[Any]":
        accepting = self.script.accepting.pop(0) if self.script.accepting else None
        if accepting == HANGS:
            await asyncio.Event().wait()
        if isinstance(accepting, Exception):
            raise accepting
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        outcome = self.script.answers.pop(0) if self.script.answers else 0
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        elif outcome == HANGS:
            self.script.pending.append(answer)
        else:
            tp = TopicPartition(topic, options["partition"])
            answer.set_result(RecordMetadata(topic, tp.partition, tp, outcome, 0, 0, 0))
        return answer


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script()

    async def start(settings: KafkaSettings, *, idempotent: bool) -> FakeProducer:
        problem = made.starting.pop(0) if made.starting else None
        if problem is not None:
            raise problem
        made.made += 1
        return FakeProducer(made)

    async def stop(producer: FakeProducer) -> None:
        made.stopped.append(producer.number)

    monkeypatch.setattr(aiokafka_producer, "start_producer", start)
    monkeypatch.setattr(aiokafka_producer, "stop_producer", stop)
    return made


async def count(topic: str) -> int:
    if topic != "t":
        raise UnknownTopic(topic)
    return 4


def producer() -> AiokafkaProducer:
    return AiokafkaProducer(SETTINGS, count, idempotent=True)


async def send(made: AiokafkaProducer) -> Sent:
    return await made.send("t", key=b"k", value=b"v", partition=2)


async def test_an_answer_is_where_it_lies(script: Script) -> None:
    script.answers = [17]
    assert await send(producer()) == Sent(2, 17)


@pytest.mark.parametrize(
    ("error", "outcome", "anew"),
    [
        (kafka_errors.OutOfOrderSequenceNumber(), SendUnknown, True),
        (kafka_errors.ProducerFenced(), SendUnknown, True),
        (kafka_errors.InvalidProducerEpoch(), SendUnknown, True),
        (kafka_errors.UnknownProducerId(), SendUnknown, True),
        (kafka_errors.MessageSizeTooLargeError(), SendRefused, True),
        (kafka_errors.TopicAuthorizationFailedError(), SendRefused, True),
        (kafka_errors.PolicyViolationError(), SendRefused, True),
        (kafka_errors.UnknownError(), SendUnknown, True),
        (kafka_errors.KafkaTimeoutError(), SendUnknown, True),
        (kafka_errors.RequestTimedOutError(), SendUnknown, False),
        (kafka_errors.NotEnoughReplicasAfterAppendError(), SendUnknown, False),
        (kafka_errors.KafkaConnectionError(), SendUnknown, False),
    ],
)
async def test_what_an_error_means(
    script: Script, error: Exception, outcome: type[Exception], anew: bool
) -> None:
    script.answers = [error, 5]
    made = producer()
    with pytest.raises(outcome):
        await send(made)
    assert await send(made) == Sent(2, 5)
    await made.close()
    assert script.made == (2 if anew else 1)
    assert sorted(script.stopped) == ([1, 2] if anew else [1])


async def test_no_answer_in_time_is_unknown_and_later_errors_disturb_nobody(script: Script) -> None:
    script.answers = [HANGS, 5]
    made = producer()
    with pytest.raises(SendUnknown, match="100 ms"):
        await send(made)
    assert await send(made) == Sent(2, 5)
    assert script.made == 1


async def test_a_duplicate_without_an_offset_is_unknown(script: Script) -> None:
    script.answers = [-1]
    with pytest.raises(SendUnknown, match="in the log"):
        await send(producer())


@pytest.mark.parametrize(
    ("accepting", "outcome"),
    [
        (HANGS, BrokerAway),
        (kafka_errors.KafkaTimeoutError(), BrokerAway),
        (kafka_errors.KafkaConnectionError(), BrokerAway),
        (kafka_errors.MessageSizeTooLargeError(), SendRefused),
    ],
)
async def test_what_is_not_accepted_is_certainly_not_sent(
    script: Script, accepting: Any, outcome: type[Exception]
) -> None:
    script.accepting = [accepting]
    with pytest.raises(outcome):
        await send(producer())
    assert script.made == 1


async def test_a_producer_that_ended_before_takes_nothing_and_the_next_one_does(
    script: Script,
) -> None:
    script.accepting = [kafka_errors.ProducerFenced(), None]
    script.answers = [9]
    assert await send(producer()) == Sent(2, 9)
    assert script.made == 2


async def test_no_new_producer_is_made_for_ever(script: Script) -> None:
    script.accepting = [kafka_errors.ProducerFenced()]
    script.starting = [None, BrokerAway("gone")]
    with pytest.raises(BrokerAway):
        await send(producer())


async def test_cancelling_leaves_the_producer_whole(script: Script) -> None:
    script.answers = [HANGS, 3]
    made = producer()
    task = asyncio.ensure_future(send(made))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await send(made) == Sent(2, 3)
    assert script.made == 1


async def test_many_errors_at_once_make_one_new_producer(script: Script) -> None:
    script.answers = [HANGS] * 5
    made = producer()
    tasks = [asyncio.ensure_future(send(made)) for _ in range(5)]
    await until(lambda: len(script.pending) == 5, timeout_s=5, what="five sends on their way")
    for answer in script.pending:
        answer.set_exception(kafka_errors.OutOfOrderSequenceNumber())
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, SendUnknown) for outcome in outcomes)
    script.answers = [1]
    await send(made)
    assert script.made == 2


async def test_topics_and_partitions_that_are_not_there(script: Script) -> None:
    made = producer()
    with pytest.raises(SendRefused):
        await made.send("nothing", key=b"k", value=b"v")
    for partition in (-1, 4):
        with pytest.raises(SendRefused):
            await made.send("t", key=b"k", value=b"v", partition=partition)
    assert script.made == 0
