"""A commit that a rebalance overtakes: it comes to nothing, and teaches the next one nothing."""

from typing import Any

from aiokafka import TopicPartition

from stream.aiokafka_group import AiokafkaGroupReader
from stream.log_ranges import LogRanges
from stream.settings import KafkaSettings

MEMBER = (1, "member")


class Coordinator:
    """Answers what the group has committed, after something else happened."""

    def __init__(self) -> None:
        self.meanwhile: Any = None
        self.asked = 0

    async def committed(self, _: TopicPartition) -> int:
        self.asked += 1
        if self.meanwhile is not None:
            self.meanwhile()
        return 5


def reader_of(coordinator: Coordinator) -> AiokafkaGroupReader:
    settings = KafkaSettings("127.0.0.1:1")
    reader = AiokafkaGroupReader(settings, "group", "topic", LogRanges(settings))
    reader._consumer = coordinator  # type: ignore[assignment]
    reader._change(MEMBER, frozenset({0, 1}))
    return reader


async def test_a_rebalance_while_the_committed_offsets_are_asked_for() -> None:
    coordinator = Coordinator()
    reader = reader_of(coordinator)
    token = reader.assignment.token
    coordinator.meanwhile = lambda: reader._change(None, frozenset())
    assert await reader.commit({0: 7, 1: 7}, token) is False
    assert coordinator.asked == 1


async def test_an_answer_for_an_assignment_that_is_over_is_forgotten() -> None:
    coordinator = Coordinator()
    reader = reader_of(coordinator)
    token = reader.assignment.token

    def again() -> None:
        reader._change(None, frozenset())
        reader._change((2, "member"), frozenset({0, 1}))

    coordinator.meanwhile = again
    assert await reader.commit({0: 7}, token) is False
    coordinator.meanwhile = None
    # Not above what is committed: nothing is sent, and what is committed was asked for anew.
    assert await reader.commit({0: 5}, reader.assignment.token) is True
    assert coordinator.asked == 2
