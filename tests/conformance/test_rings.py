"""What every kind of ring keeps, between two real processes that are killed at bad moments."""

import gc
import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpu_stages.host_ring import HostRing
from gpu_stages.ring import RingConsumer, RingProducer, RingSpec, Taken
from gpu_stages.rings import UnknownRing, open_consumer, open_producer
from gpu_stages.stage import NoRoom, PartTooLarge
from tests.conformance.ring_peer import header_of, is_whole, parts_of, publish
from tests.support.processes import shared_memory_names

PEER = Path(__file__).with_name("ring_peer.py")
ROOT = PEER.parents[2]
SLOTS = 6
DEADLINE_S = 20

RingMaker = Callable[[int, int], HostRing]


class Peer:
    """The other process; its output is its progress."""

    def __init__(self, ring: HostRing, role: str, count: int = 0) -> None:
        handle = ring.handle
        self.process = subprocess.Popen(
            [sys.executable, str(PEER), role, json.dumps(handle.as_json()), str(count)],
            stdout=subprocess.PIPE,
            pass_fds=handle.fds(),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(params=["host"])
def make_ring(request: pytest.FixtureRequest) -> Iterator[RingMaker]:
    rings: list[HostRing] = []

    def make(slots: int = SLOTS, payload_bytes: int = 8192) -> HostRing:
        assert request.param == "host"
        rings.append(HostRing("test", RingSpec(slots, payload_bytes)))
        return rings[-1]

    yield make
    for ring in rings:
        ring.close()


@pytest.fixture
def peers() -> Iterator[Callable[..., Peer]]:
    started: list[Peer] = []

    def start(ring: HostRing, role: str, count: int = 0) -> Peer:
        started.append(Peer(ring, role, count))
        return started[-1]

    yield start
    for peer in started:
        peer.kill()


def both(ring: HostRing) -> tuple[RingProducer, RingConsumer]:
    handle = ring.handle.as_json()
    return open_producer(handle), open_consumer(handle)


def take_within(consumer: RingConsumer, deadline_s: float = DEADLINE_S) -> Taken:
    """The next message, woken by the descriptor and nothing else."""
    end_s = time.monotonic() + deadline_s
    while (taken := consumer.take()) is None:
        left_s = end_s - time.monotonic()
        assert left_s > 0, "nothing came"
        select.select([consumer.data_fd()], (), (), left_s)
        consumer.quiet()
    return taken


def fill(producer: RingProducer, first: int = 0) -> int:
    """Publish until there is no room; returns how many."""
    number = first
    while producer.room():
        producer.publish(header_of(number), parts_of(number))
        number += 1
    return number - first


def test_messages_arrive_whole_and_in_order_from_another_process(
    make_ring: RingMaker, peers: Callable[..., Peer]
) -> None:
    ring = make_ring()
    consumer = open_consumer(ring.handle.as_json())
    peers(ring, "produce", 2000)
    for number in range(2000):
        taken = take_within(consumer)
        assert taken.header.frame_index == number
        assert is_whole(taken)
        consumer.release(taken)
    assert consumer.take() is None


def test_messages_reach_another_process(make_ring: RingMaker, peers: Callable[..., Peer]) -> None:
    ring = make_ring()
    producer = open_producer(ring.handle.as_json())
    peer = peers(ring, "consume", 300)
    assert peer.line() == "attached"
    for number in range(300):
        publish(producer, number)
    assert [peer.line() for _ in range(300)] == [str(n) for n in range(300)]


def test_nothing_is_dropped_when_it_is_full_and_slots_come_back_in_any_order(
    make_ring: RingMaker,
) -> None:
    producer, consumer = both(make_ring())
    assert fill(producer) == SLOTS
    with pytest.raises(NoRoom):
        producer.publish(header_of(99), parts_of(99))
    held = [take_within(consumer) for _ in range(SLOTS)]
    assert consumer.take() is None
    for taken in (held[4], held[1], held[5]):
        consumer.release(taken)
    assert producer.room() == 3
    assert fill(producer, first=SLOTS) == 3
    untouched = [held[0], held[2], held[3]]
    assert all(is_whole(taken) for taken in untouched)
    for number in range(SLOTS, SLOTS + 3):
        taken = take_within(consumer)
        assert taken.header.frame_index == number
        assert is_whole(taken)


def test_what_does_not_fit_is_refused_and_costs_no_slot(make_ring: RingMaker) -> None:
    producer, _ = both(make_ring())
    with pytest.raises(PartTooLarge):
        producer.publish(header_of(1), [bytes(8193)])
    with pytest.raises(PartTooLarge):
        producer.publish(header_of(1), [b"x"] * 5)
    assert producer.room() == SLOTS


def test_every_number_survives_many_laps(make_ring: RingMaker) -> None:
    """Positions wrap; a word of an earlier lap is never taken for a new one."""
    producer, consumer = both(make_ring(3, 8192))
    for start in (0, (1 << 24) - 5):
        producer._position = consumer._position = start  # type: ignore[attr-defined]
        producer._returned = consumer._returned = start  # type: ignore[attr-defined]
        for number in range(20):
            producer.publish(header_of(number), parts_of(number))
            taken = take_within(consumer)
            assert taken.header.frame_index == number
            assert consumer.take() is None
            consumer.release(taken)


def test_a_producer_has_no_room_until_the_consumer_is_there(make_ring: RingMaker) -> None:
    ring = make_ring()
    producer = open_producer(ring.handle.as_json())
    assert producer.room() == 0
    open_consumer(ring.handle.as_json())
    assert select.select([producer.space_fd()], (), (), 0)[0], "and is woken when it is"
    assert producer.room() == SLOTS


def test_slots_of_a_killed_consumer_come_back(
    make_ring: RingMaker, peers: Callable[..., Peer]
) -> None:
    ring = make_ring()
    producer = open_producer(ring.handle.as_json())
    for _ in range(3):
        peer = peers(ring, "hold", 4)
        assert peer.line() == "attached"
        assert fill(producer) == SLOTS
        assert peer.line() == "holding"
        peer.kill()
        assert producer.room() == 0
        ring.reset()
        assert producer.room() == 0, "not before the next consumer has taken note"
    peer = peers(ring, "consume", 100)
    assert peer.line() == "attached"
    for number in range(500, 600):
        publish(producer, number)
    assert [peer.line() for _ in range(100)] == [str(number) for number in range(500, 600)]


def test_a_half_written_slot_is_never_read(
    make_ring: RingMaker, peers: Callable[..., Peer]
) -> None:
    ring = make_ring()
    consumer = open_consumer(ring.handle.as_json())
    peer = peers(ring, "produce_half", 2)
    assert peer.line() == "half"
    for number in range(2):
        assert take_within(consumer).header.frame_index == number
    assert consumer.take() is None
    peer.kill()
    assert consumer.take() is None
    ring.reset()
    peers(ring, "produce", 50)
    for number in range(50):
        taken = take_within(consumer)
        assert taken.header.frame_index == number
        assert is_whole(taken)
        consumer.release(taken)


def test_what_was_in_flight_at_a_reset_is_gone_on_both_sides(make_ring: RingMaker) -> None:
    ring = make_ring()
    producer, consumer = both(ring)
    fill(producer)
    held = take_within(consumer)
    ring.reset()
    assert select.select([consumer.data_fd()], (), (), 0)[0]
    assert producer.room() == 0, "the consumer may still read its slots"
    assert is_whole(held)
    assert consumer.holds(held)
    assert consumer.take() is None
    assert not consumer.holds(held)
    consumer.release(held)  # of the old generation: without effect
    assert producer.room() == SLOTS
    producer.publish(header_of(7), parts_of(7))
    assert take_within(consumer).header.frame_index == 7
    assert consumer.take() is None


def test_a_message_published_under_the_old_generation_is_not_seen(make_ring: RingMaker) -> None:
    """A producer that did not notice the reset yet writes a word that nobody believes."""
    ring = make_ring()
    producer, consumer = both(ring)
    assert producer.room() == SLOTS
    old = producer._generation  # type: ignore[attr-defined]
    ring.reset()
    assert consumer.take() is None
    words = producer._words  # type: ignore[attr-defined]
    words[producer._layout.published_at] = old << 40  # type: ignore[attr-defined]
    assert consumer.take() is None


def test_a_stream_that_is_killed_again_and_again_is_never_torn(
    make_ring: RingMaker, peers: Callable[..., Peer]
) -> None:
    seed = 20261129
    moments = random.Random(seed)
    ring = make_ring()
    consumer = open_consumer(ring.handle.as_json())
    seen = 0
    for _ in range(12):
        peer = peers(ring, "produce", 0)
        expected = 0
        stop_after = moments.randrange(1, 400)
        while expected < stop_after:
            taken = take_within(consumer)
            assert taken.header.frame_index == expected, f"seed {seed}"
            assert is_whole(taken), f"seed {seed}"
            consumer.release(taken)
            expected += 1
        peer.kill()
        while (taken := consumer.take()) is not None:
            assert is_whole(taken), f"seed {seed}"
        ring.reset()
        seen += expected
    assert seen > 500


def test_nothing_is_left_behind(peers: Callable[..., Peer]) -> None:
    named_before = shared_memory_names()
    gc.collect()
    fds_before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        ring = HostRing("leak", RingSpec(SLOTS, 8192))
        producer, consumer = both(ring)
        producer.publish(header_of(1), parts_of(1))
        taken = take_within(consumer)
        consumer.release(taken)
        del taken
        producer.close()
        consumer.close()
        ring.close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == fds_before
    ring = HostRing("leak", RingSpec(SLOTS, 8192))
    peer = peers(ring, "hold", 1)
    assert peer.line() == "attached"
    peer.kill()
    ring.close()
    assert shared_memory_names() == named_before


def test_what_is_no_ring_is_refused() -> None:
    with pytest.raises(UnknownRing):
        open_consumer({"kind": "carrier pigeon"})
    fd = os.memfd_create("not-a-ring")
    os.ftruncate(fd, 4096)
    try:
        with pytest.raises(ValueError, match="not a ring"):
            open_producer({"kind": "host", "memory_fd": fd, "data_fd": 0, "space_fd": 0})
    finally:
        os.close(fd)
    with pytest.raises(ValueError, match="slots"):
        HostRing("none", RingSpec(0, 10))
