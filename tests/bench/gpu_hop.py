"""How long a 1080p RGBA frame takes from one process to the next when it lies on a GPU.

Three ways, in turns in one run:

- `ring`: our ring in device memory. The sender copies the frame into the arena, waits for its
  event, publishes; the hop ends when the receiver has taken the slot, whose memory is its own to
  read by then.
- `copy`: what nobody can go below: the same copy inside one process, and the wait for its event.
- `host`: what one would do without CUDA IPC: down into (pinned) host memory, over a ring in shared
  memory, up to the device again, which is where the next stage needs it.

    python -m tests.bench.gpu_hop device|host HANDLE      the receiver's process
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from gpu_stages.cuda_driver import CudaDriver
from gpu_stages.cuda_ring import CudaRing
from gpu_stages.header import Header, MessageKind
from gpu_stages.host_ring import HostRing
from gpu_stages.ring import RingProducer, RingSpec
from gpu_stages.rings import open_consumer, open_producer
from tests.support.fake_cuda import FakeArray, FakeCuda
from tests.support.real_cuda import RealCuda, device_asked

FRAME_BYTES = 1920 * 1080 * 4
FRAMES = int(os.environ.get("DHSCHED_BENCH_FRAMES", "300"))
WARM_UP = 20
PACE_S = 0.004
_READY_S_MAX = 60


class Device(CudaDriver, Protocol):
    """A driver with a way in for content: the real one, and the stand-in in tests of this file."""

    def write(self, target: int, data: memoryview) -> None: ...

    def pin(self, view: memoryview) -> bool: ...

    def read(self, address: int, size: int) -> bytes: ...


class FakeDevice(FakeCuda):
    """The stand-in, as far as this measurement needs it."""

    def write(self, target: int, data: memoryview) -> None:
        mapped, at = self._at(target, len(data))
        mapped[at : at + len(data)] = bytes(data)

    def pin(self, view: memoryview) -> bool:
        return bool(view)


def open_device() -> Device:
    """The device that `DHSCHED_TEST_CUDA` names, or the stand-in under FAKE_CUDA."""
    memory = os.environ.get("FAKE_CUDA")
    return FakeDevice(Path(memory)) if memory else RealCuda(device_asked())


def receive(way: str, handle: dict[str, Any]) -> None:
    """The receiver's process: prints the hops in microseconds, and how many came by the device."""
    device = open_device()
    consumer = open_consumer(handle, device if way == "device" else None)
    target = device.allocate(FRAME_BYTES)
    hops: list[float] = []
    by_device = 0
    print("ready", flush=True)
    while len(hops) < FRAMES + WARM_UP:
        taken = consumer.take()
        if taken is None:
            select.select([consumer.data_fd()], (), ())
            consumer.quiet()
            continue
        part = taken.on_device[0] if taken.on_device else None
        if part is None:
            device.write(target, taken.parts[0])
        now_ns = time.monotonic_ns()
        last = (target if part is None else part.address) + FRAME_BYTES - 1
        assert device.read(last, 1)[0] == taken.header.frame_index % 256, "the frame is whole"
        by_device += part is not None
        hops.append(now_ns / 1000 - taken.header.stamps_us[0])
        consumer.release(taken)
    print(json.dumps({"hops": hops[WARM_UP:], "by_device": by_device}), flush=True)
    consumer.close()


@contextmanager
def receiver(way: str, ring: HostRing) -> Iterator["subprocess.Popen[bytes]"]:
    """The other process, attached to the ring."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.gpu_hop", way, json.dumps(ring.as_json())],
        pass_fds=ring.fds(),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    try:
        readable, _, _ = select.select([process.stdout], (), (), _READY_S_MAX)
        if not readable or process.stdout.readline() != b"ready\n":
            raise ChildProcessError("the receiver did not start")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _wait_room(producer: RingProducer) -> None:
    while not producer.room():
        select.select([producer.space_fd()], (), (), 1)
        producer.quiet()


def _header(number: int) -> Header:
    stamps_us = (time.monotonic_ns() // 1000, 0, 0, 0)
    return Header(MessageKind.TICK_PICTURE, 0, 1, 1, frame_index=number, stamps_us=stamps_us)


def _draw(device: Device, frame: FakeArray, number: int) -> None:
    """What makes frame `number` different: its last byte."""
    device.write(frame.address + FRAME_BYTES - 1, memoryview(bytearray([number % 256])))


def ring_hops(device: Device) -> tuple[list[float], int]:
    """Hops through our ring in device memory, and how many frames stayed on the device."""
    ring = CudaRing("bench", RingSpec(4, FRAME_BYTES + 4096))
    producer = open_producer(ring.as_json(), driver=device)
    frame = FakeArray(device.allocate(FRAME_BYTES), (FRAME_BYTES,))
    try:
        with receiver("device", ring) as process:
            for number in range(FRAMES + WARM_UP):
                time.sleep(PACE_S)
                _draw(device, frame, number)
                _wait_room(producer)
                producer.publish(_header(number), [frame])
            assert process.stdout is not None
            got = json.loads(process.stdout.readline())
            return got["hops"], got["by_device"]
    finally:
        producer.close()
        ring.close()


def host_hops(device: Device) -> list[float]:
    """Hops by way of host memory: down, over, up."""
    ring = HostRing("bench", RingSpec(4, FRAME_BYTES + 4096))
    producer = open_producer(ring.as_json())
    frame = FakeArray(device.allocate(FRAME_BYTES), (FRAME_BYTES,))
    staging = bytearray(FRAME_BYTES)
    device.pin(memoryview(staging))
    try:
        with receiver("host", ring) as process:
            for number in range(FRAMES + WARM_UP):
                time.sleep(PACE_S)
                _draw(device, frame, number)
                _wait_room(producer)
                header = _header(number)
                device.copy_to_host(memoryview(staging), frame.address)
                producer.publish(header, [staging])
            assert process.stdout is not None
            return json.loads(process.stdout.readline())["hops"]
    finally:
        producer.close()
        ring.close()


def copies(device: Device) -> list[float]:
    """The copy alone, its event awaited, in microseconds."""
    source, target = device.allocate(FRAME_BYTES), device.allocate(FRAME_BYTES)
    spent: list[float] = []
    for _ in range(FRAMES + WARM_UP):
        time.sleep(PACE_S)
        began_ns = time.monotonic_ns()
        device.copy(target, source, FRAME_BYTES)
        device.complete()
        spent.append((time.monotonic_ns() - began_ns) / 1000)
    return spent[WARM_UP:]


if __name__ == "__main__":
    receive(sys.argv[1], json.loads(sys.argv[2]))
