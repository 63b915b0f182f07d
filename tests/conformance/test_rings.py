"""What every kind of ring keeps, between two real processes that are killed at bad moments."""

import gc
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_stages.cuda_ring import CudaRing
from gpu_stages.host_ring import HostRing
from gpu_stages.ring import RingConsumer, RingProducer, RingSpec, Taken
from gpu_stages.rings import UnknownRing, open_consumer, open_producer
from gpu_stages.stage import NoRoom, PartTooLarge
from tests.conformance.ring_peer import header_of, is_whole, publish, sent_parts
from tests.support.fake_cuda import FakeCuda
from tests.support.processes import shared_memory_names
from tests.support.real_cuda import RealCuda, device_asked

PEER = Path(__file__).with_name("ring_peer.py")
ROOT = PEER.parents[2]
SLOTS = 6
DEADLINE_S = 20


class Link:
    """A ring of one kind, and what either side needs on it."""

    def __init__(self, kind: str, slots: int, payload_bytes: int, memory: Path) -> None:
        spec = RingSpec(slots, payload_bytes)
        self.kind = kind
        self.memory = memory
        self.ring = HostRing("test", spec) if kind == "host" else CudaRing("test", spec)
        self.source = self._driver()
        self.sink = self._driver()

    def _driver(self) -> FakeCuda | RealCuda | None:
        if self.kind == "device":
            return RealCuda(device_asked())
        return FakeCuda(self.memory) if self.kind == "cuda" else None

    def producer(self) -> RingProducer:
        return open_producer(self.ring.as_json(), driver=self.source)

    def consumer(self) -> RingConsumer:
        self.sink = self._driver()
        return open_consumer(self.ring.as_json(), self.sink)

    def both(self) -> tuple[RingProducer, RingConsumer]:
        """Both sides, with device memory agreed on where there is any."""
        if self.kind == "device":
            pytest.skip("a process cannot open memory that it exported itself")
        producer, consumer = self.producer(), self.consumer()
        if self.kind == "cuda":
            for by_device in (False, True):
                self.send(producer, 0)
                taken = take_within(consumer)
                assert bool(taken.on_device) == by_device
                consumer.release(taken)
        return producer, consumer

    def send(self, producer: RingProducer, number: int) -> None:
        producer.publish(header_of(number), sent_parts(number, self.source))

    def publish(self, producer: RingProducer, number: int) -> None:
        publish(producer, number, self.source)

    def is_whole(self, taken: Taken) -> bool:
        return is_whole(taken, self.sink)

    def environment(self) -> dict[str, str]:
        """What tells the other process which driver it takes."""
        return {"FAKE_CUDA": str(self.memory)} if self.kind == "cuda" else {}

    def fill(self, producer: RingProducer, first: int = 0) -> int:
        """Publish until there is no room; returns how many."""
        number = first
        while producer.room():
            self.send(producer, number)
            number += 1
        return number - first


class Peer:
    """The other process; its output is its progress."""

    def __init__(self, link: Link, role: str, count: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PEER), role, json.dumps(link.ring.as_json()), str(count)],
            stdout=subprocess.PIPE,
            pass_fds=link.ring.fds(),
            env={**os.environ, "PYTHONPATH": str(ROOT), **link.environment()},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


LinkMaker = Callable[..., Link]
PeerMaker = Callable[..., Peer]


KINDS = ["host", "cuda", *(["device"] if device_asked() else [])]
"""Host memory, device memory of the stand-in driver, and of a real device where one is named."""


@pytest.fixture(params=KINDS)
def make_link(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LinkMaker]:
    links: list[Link] = []

    def make(slots: int = SLOTS, payload_bytes: int = 8192) -> Link:
        links.append(Link(request.param, slots, payload_bytes, tmp_path))
        return links[-1]

    yield make
    for link in links:
        with suppress(OSError):  # closed by the test already
            link.ring.close()


@pytest.fixture
def peers() -> Iterator[PeerMaker]:
    started: list[Peer] = []

    def start(link: Link, role: str, count: int = 0) -> Peer:
        started.append(Peer(link, role, count))
        return started[-1]

    yield start
    for peer in started:
        peer.kill()


def take_within(consumer: RingConsumer, deadline_s: float = DEADLINE_S) -> Taken:
    """The next message, woken by the descriptor and nothing else."""
    end_s = time.monotonic() + deadline_s
    while (taken := consumer.take()) is None:
        left_s = end_s - time.monotonic()
        assert left_s > 0, "nothing came"
        select.select([consumer.data_fd()], (), (), left_s)
        consumer.quiet()
    return taken


def test_messages_arrive_whole_and_in_order_from_another_process(
    make_link: LinkMaker, peers: PeerMaker
) -> None:
    link = make_link()
    consumer = link.consumer()
    peers(link, "produce", 2000)
    by_device = 0
    for number in range(2000):
        taken = take_within(consumer)
        assert taken.header.frame_index == number
        assert link.is_whole(taken)
        by_device += bool(taken.on_device)
        consumer.release(taken)
    assert consumer.take() is None
    assert by_device == 0 if link.kind == "host" else by_device > 1900


def test_messages_reach_another_process(make_link: LinkMaker, peers: PeerMaker) -> None:
    link = make_link()
    producer = link.producer()
    peer = peers(link, "consume", 300)
    assert peer.line() == "attached"
    for number in range(300):
        link.publish(producer, number)
    assert [peer.line() for _ in range(300)] == [str(n) for n in range(300)]


def test_nothing_is_dropped_when_it_is_full_and_slots_come_back_in_any_order(
    make_link: LinkMaker,
) -> None:
    link = make_link()
    producer, consumer = link.both()
    assert link.fill(producer) == SLOTS
    with pytest.raises(NoRoom):
        link.send(producer, 99)
    held = [take_within(consumer) for _ in range(SLOTS)]
    assert consumer.take() is None
    for taken in (held[4], held[1], held[5]):
        consumer.release(taken)
    assert producer.room() == 3
    assert link.fill(producer, first=SLOTS) == 3
    untouched = [held[0], held[2], held[3]]
    assert all(link.is_whole(taken) for taken in untouched)
    for number in range(SLOTS, SLOTS + 3):
        taken = take_within(consumer)
        assert taken.header.frame_index == number
        assert link.is_whole(taken)


def test_what_does_not_fit_is_refused_and_costs_no_slot(make_link: LinkMaker) -> None:
    producer, _ = make_link().both()
    with pytest.raises(PartTooLarge):
        producer.publish(header_of(1), [bytes(8193)])
    with pytest.raises(PartTooLarge):
        producer.publish(header_of(1), [b"x"] * 5)
    with pytest.raises(struct.error):
        producer.publish(replace(header_of(1), epoch=-1), [b"x"])
    assert producer.room() == SLOTS


@pytest.mark.parametrize(
    "part",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(24, dtype=np.uint8)[::2],
        np.arange(6, dtype=">i2"),
        np.zeros((0, 3), np.int16),
        bytearray(b"bytes"),
        memoryview(b"of any kind"),
    ],
)
def test_any_buffer_arrives_as_its_bytes(make_link: LinkMaker, part: Any) -> None:
    producer, consumer = make_link().both()
    producer.publish(header_of(1), [b"before", part, b"after"])
    parts = [bytes(one) for one in take_within(consumer).parts]
    assert parts == [b"before", memoryview(part).tobytes(), b"after", b""]


def test_every_number_survives_many_laps(make_link: LinkMaker) -> None:
    """Positions wrap; a word of an earlier lap is never taken for a new one."""
    link = make_link(slots=3)
    producer, consumer = link.both()
    for start in (100, (1 << 24) - 5, 2 * (1 << 24) - 5):
        assert producer.room() == 3, "everything that came back is collected"
        producer._position = consumer._position = start  # type: ignore[attr-defined]
        producer._returned = consumer._returned = start  # type: ignore[attr-defined]
        for number in range(20):
            link.send(producer, number)
            taken = take_within(consumer)
            assert taken.header.frame_index == number
            assert consumer.take() is None
            consumer.release(taken)


def test_a_producer_has_no_room_until_the_consumer_is_there(make_link: LinkMaker) -> None:
    link = make_link()
    producer = link.producer()
    assert producer.room() == 0
    link.consumer()
    assert select.select([producer.space_fd()], (), (), 0)[0], "and is woken when it is"
    assert producer.room() == SLOTS


def test_slots_of_a_killed_consumer_come_back(make_link: LinkMaker, peers: PeerMaker) -> None:
    link = make_link()
    producer = link.producer()
    for _ in range(3):
        peer = peers(link, "hold", 4)
        assert peer.line() == "attached"
        assert link.fill(producer) == SLOTS
        assert peer.line() == "holding"
        peer.kill()
        assert producer.room() == 0
        link.ring.reset()
        assert producer.room() == 0, "not before the next consumer has taken note"
    peer = peers(link, "consume", 100)
    assert peer.line() == "attached"
    for number in range(500, 600):
        link.publish(producer, number)
    assert [peer.line() for _ in range(100)] == [str(number) for number in range(500, 600)]


def test_a_half_written_slot_is_never_read(make_link: LinkMaker, peers: PeerMaker) -> None:
    link = make_link()
    consumer = link.consumer()
    peer = peers(link, "produce_half", 2)
    assert peer.line() == "half"
    for number in range(2):
        assert take_within(consumer).header.frame_index == number
    assert consumer.take() is None
    peer.kill()
    assert consumer.take() is None
    link.ring.reset()
    peers(link, "produce", 50)
    for number in range(50):
        taken = take_within(consumer)
        assert taken.header.frame_index == number
        assert link.is_whole(taken)
        consumer.release(taken)


def test_what_was_in_flight_at_a_reset_is_gone_on_both_sides(make_link: LinkMaker) -> None:
    link = make_link()
    producer, consumer = link.both()
    link.fill(producer)
    held = take_within(consumer)
    link.ring.reset()
    assert select.select([consumer.data_fd()], (), (), 0)[0]
    assert producer.room() == 0, "the consumer may still read its slots"
    assert link.is_whole(held)
    assert consumer.holds(held)
    assert consumer.take() is None
    assert not consumer.holds(held)
    consumer.release(held)  # of the old generation: without effect
    assert producer.room() == SLOTS
    link.send(producer, 7)
    assert take_within(consumer).header.frame_index == 7
    assert consumer.take() is None


def test_a_message_published_under_the_old_generation_is_not_seen(make_link: LinkMaker) -> None:
    """A producer that did not notice the reset yet writes a word that nobody believes."""
    link = make_link()
    producer, consumer = link.both()
    assert producer.room() == SLOTS
    old = producer._generation  # type: ignore[attr-defined]
    link.ring.reset()
    assert consumer.take() is None
    words = producer._words  # type: ignore[attr-defined]
    words[producer._layout.published_at] = old << 40  # type: ignore[attr-defined]
    assert consumer.take() is None


def test_a_stream_that_is_killed_again_and_again_is_never_torn(
    make_link: LinkMaker, peers: PeerMaker
) -> None:
    seed = 20261129
    moments = random.Random(seed)
    link = make_link()
    consumer = link.consumer()
    seen = 0
    for _ in range(12):
        peer = peers(link, "produce", 0)
        expected = 0
        stop_after = moments.randrange(1, 400)
        while expected < stop_after:
            taken = take_within(consumer)
            assert taken.header.frame_index == expected, f"seed {seed}"
            assert link.is_whole(taken), f"seed {seed}"
            consumer.release(taken)
            expected += 1
        peer.kill()
        while (taken := consumer.take()) is not None:
            assert link.is_whole(taken), f"seed {seed}"
        link.ring.reset()
        seen += expected
    assert seen > 500


def test_nothing_is_left_behind(make_link: LinkMaker, peers: PeerMaker) -> None:
    named_before = shared_memory_names()
    link = make_link()
    link.ring.close()
    gc.collect()
    fds_before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        link = Link(link.kind, SLOTS, 8192, link.memory)
        producer, consumer = link.both()
        link.send(producer, 1)
        taken = take_within(consumer)
        assert link.is_whole(taken)
        consumer.release(taken)
        del taken
        consumer.close()
        producer.close()
        if link.source is not None and link.sink is not None:
            assert link.source.open_count() == 1, "only the test's own array is left"
            assert link.sink.open_count() == 0
        link.ring.close()
        link.source = link.sink = None
    del producer, consumer
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == fds_before
    link = make_link()
    peer = peers(link, "hold", 1)
    assert peer.line() == "attached"
    peer.kill()
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
