"""The other side of a ring, in a process of its own; steered by `test_rings` and killed by it.

    python ring_peer.py ROLE HANDLE_JSON [COUNT]

Messages are self-describing: message n of live n % 3 has frame_index n and three parts whose bytes
are all n % 251, of lengths that vary with n. On a ring with device memory the second part is on the
(stand-in) device.
"""

import json
import os
import select
import sys
import time
from pathlib import Path

from gpu_stages import host_ring
from gpu_stages.header import Header, MessageKind
from gpu_stages.ring import RingProducer, Taken
from gpu_stages.rings import open_consumer, open_producer
from gpu_stages.stage import Part
from tests.support.fake_cuda import FakeCuda
from tests.support.real_cuda import RealCuda, device_asked


def parts_of(number: int) -> list[bytes]:
    fill = bytes([number % 251])
    return [fill * (number % 1000), fill * 960, fill * (1 + number * 7 % 3000)]


def header_of(number: int) -> Header:
    return Header(MessageKind.TICK_MOTION, number % 3, 1, 1, frame_index=number)


def sent_parts(number: int, driver: FakeCuda | RealCuda | None) -> list[Part]:
    first, second, third = parts_of(number)
    if driver is None:
        return [first, second, third]
    return [first, driver.scratch(second), third]


def received_parts(taken: Taken, driver: FakeCuda | RealCuda | None) -> list[bytes]:
    parts = [bytes(part) for part in taken.parts[:3]]
    for i, part in enumerate(taken.on_device):
        if part is not None and driver is not None:
            assert parts[i] == b""
            parts[i] = driver.read(part.address, part.size_bytes)
    return parts


def is_whole(taken: Taken, driver: FakeCuda | RealCuda | None = None) -> bool:
    return received_parts(taken, driver) == parts_of(taken.header.frame_index)


def publish(producer: RingProducer, number: int, driver: FakeCuda | RealCuda | None = None) -> None:
    """Wait for room, without spinning."""
    while not producer.room():
        assert select.select([producer.space_fd()], (), (), 20)[0], "no room for 20 s"
        producer.quiet()
    producer.publish(header_of(number), sent_parts(number, driver))


def say(word: str) -> None:
    print(word, flush=True)


def driver_of(handle: dict[str, object]) -> FakeCuda | RealCuda | None:
    if handle["kind"] != "cuda":
        return None
    memory = os.environ.get("FAKE_CUDA")
    return FakeCuda(Path(memory)) if memory else RealCuda(device_asked())


def produce(handle: dict[str, object], count: int) -> None:
    """`count` messages as fast as there is room; 0: for ever."""
    driver = driver_of(handle)
    producer = open_producer(handle, driver=driver)
    number = 0
    say("attached")
    while not count or number < count:
        publish(producer, number, driver)
        number += 1
    say("done")
    time.sleep(60)


def produce_half(handle: dict[str, object], count: int) -> None:
    """`count` whole messages, then one whose payload is in place and whose word is not."""
    driver = driver_of(handle)
    producer = open_producer(handle, driver=driver)
    for number in range(count):
        publish(producer, number, driver)

    def stop_here() -> None:
        say("half")
        time.sleep(60)

    host_ring.fence = stop_here  # type: ignore[misc]
    publish(producer, count, driver)


def consume(handle: dict[str, object], count: int) -> None:
    """Echo what comes as numbers; 0: for ever."""
    driver = driver_of(handle)
    consumer = open_consumer(handle, driver)
    say("attached")
    taken_so_far = 0
    while not count or taken_so_far < count:
        taken = consumer.take()
        if taken is None:
            select.select([consumer.data_fd()], (), (), 10)
            consumer.quiet()
            continue
        say(f"{taken.header.frame_index}" if is_whole(taken, driver) else "torn")
        consumer.release(taken)
        taken_so_far += 1
    time.sleep(60)


def hold(handle: dict[str, object], count: int) -> None:
    """Take `count` slots and never give them back."""
    driver = driver_of(handle)
    consumer = open_consumer(handle, driver)
    held: list[Taken] = []
    say("attached")
    while len(held) < count:
        taken = consumer.take()
        if taken is None:
            select.select([consumer.data_fd()], (), (), 10)
            consumer.quiet()
        else:
            held.append(taken)
    say("holding")
    time.sleep(60)


if __name__ == "__main__":
    roles = {"produce": produce, "produce_half": produce_half, "consume": consume, "hold": hold}
    roles[sys.argv[1]](json.loads(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
