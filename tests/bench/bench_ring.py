"""How long a video frame takes from one process to the next: our ring, and what one would use else.

A hop is measured in one direction only: the sender writes CLOCK_MONOTONIC into the frame, the
receiver has the whole frame readable in its own process. Frames come paced (one every few ms, as
ticks do), so the receiver sleeps before each: waking it up is part of the hop, and so are caches
that others have used meanwhile. All ways are measured in turns, in the same run, on a 512x512 RGB
frame. Each way is given the frame in the form that it takes (a view, an array, a tensor), which is
made before the stamp; whatever it does with it, its message included, comes after.

What the ring takes above the floor is Python that runs right after a sleep, on both sides, where
every first step is slow: to make and pack the header, and to take the slot.
"""

import json
import multiprocessing
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gpu_stages.header import Header, MessageKind
from gpu_stages.host_ring import HostRing
from gpu_stages.memory import SharedMemory, create_bell, create_memory, quiet_bell, ring_bell
from gpu_stages.ring import RingSpec
from gpu_stages.rings import open_consumer, open_producer

FRAME_BYTES = 512 * 512 * 3
FRAMES = 100
WARM_UP = 20
ROUNDS = 3
PACE_S = 0.004


def receive_from_ring(handle: dict[str, Any]) -> None:
    """The receiver's process: stamps each frame's arrival, prints all hops in microseconds."""
    consumer = open_consumer(handle)
    hops: list[float] = []
    print("ready", flush=True)
    while len(hops) < FRAMES + WARM_UP:
        taken = consumer.take()
        if taken is None:  # as in `stage_loop`: quiet where nothing is left, then a last look
            consumer.quiet()
            taken = consumer.take()
        if taken is None:
            select.select([consumer.data_fd()], (), ())
            continue
        now_ns = time.monotonic_ns()
        frame = np.frombuffer(taken.parts[0], np.uint8)
        assert frame.size == FRAME_BYTES
        assert frame[-1] == len(hops) % 256
        hops.append(now_ns / 1000 - taken.header.stamps_us[0])
        del frame
        consumer.release(taken)
    print(json.dumps(hops), flush=True)


def ring_hops() -> list[float]:
    """Hops through our ring, microseconds."""
    ring = HostRing("bench", RingSpec(4, FRAME_BYTES + 64))
    receiver = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bench_ring", json.dumps(ring.as_json())],
        pass_fds=ring.fds(),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    producer = open_producer(ring.as_json())
    kind = MessageKind.TICK_PICTURE
    try:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == b"ready\n"
        for frame in paced_frames():
            part = memoryview(frame)  # as the renderer hands it on
            while not producer.room():
                select.select([producer.space_fd()], (), ())
                producer.quiet()
            stamps_us = (time.monotonic_ns() // 1000, 0, 0, 0)
            header = Header(kind, 0, 1, 1, stamps_us=stamps_us)
            producer.publish(header, [part])
        return json.loads(receiver.stdout.readline())[WARM_UP:]
    finally:
        receiver.kill()
        receiver.wait()
        if receiver.stdout is not None:
            receiver.stdout.close()
        producer.close()
        ring.close()


def paced_frames() -> Iterator[np.ndarray[Any, Any]]:
    """Frames that differ, one every `PACE_S`, each just drawn when it is sent."""
    frame = np.zeros(FRAME_BYTES, np.uint8)
    for number in range(FRAMES + WARM_UP):
        time.sleep(PACE_S)
        frame[:] = number % 256
        yield frame


def receive_from_queue(queue: Any, results: Any) -> None:
    """The receiver's process of a queue; its frames are (stamp, array or tensor)."""
    hops: list[float] = []
    results.put("ready")
    while len(hops) < FRAMES + WARM_UP:
        stamp_ns, frame = queue.get()
        now_ns = time.monotonic_ns()
        assert int(frame[-1]) == len(hops) % 256
        hops.append((now_ns - stamp_ns) / 1000)
        del frame
    results.put(hops)


def queue_hops(module: Any, wrap: Callable[[np.ndarray[Any, Any]], Any]) -> list[float]:
    """Hops through the queue of a multiprocessing module (the standard one, torch's), in us."""
    context = module.get_context("spawn")
    queue, results = context.Queue(4), context.Queue()
    receiver = context.Process(target=receive_from_queue, args=(queue, results), daemon=True)
    with importable():
        receiver.start()
    try:
        assert results.get(timeout=60) == "ready"
        for frame in paced_frames():
            wrapped = wrap(frame)
            queue.put((time.monotonic_ns(), wrapped))
        return results.get(timeout=60)[WARM_UP:]
    finally:
        receiver.kill()
        receiver.join()
        for each in (queue, results):
            each.close()
            each.cancel_join_thread()


@contextmanager
def importable() -> Iterator[None]:
    """A spawned child finds this module by the path of its parent."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def torch_hops() -> list[float]:
    """torch's queue: the tensor goes into shared memory, a handle goes through the pipe."""
    import torch
    import torch.multiprocessing

    torch.set_num_threads(1)
    return queue_hops(torch.multiprocessing, lambda frame: torch.from_numpy(frame.copy()))


def mp_hops() -> list[float]:
    """The standard library's queue: the array is pickled through a pipe."""
    return queue_hops(multiprocessing, lambda frame: frame.copy())


def receive_bare(memory_fd: int, bell_fd: int) -> None:
    """The receiver's process of the floor: a wake-up and a stamp, no protocol.

    Two wake-ups may become one where the machine is busy, so the sender counts its frames.
    """
    memory = SharedMemory(memory_fd)
    hops: list[float] = []
    print("ready", flush=True)
    while memory.words[1] < FRAMES + WARM_UP:
        select.select([bell_fd], (), ())
        quiet_bell(bell_fd)
        hops.append((time.monotonic_ns() - memory.words[0]) / 1000)
    print(json.dumps(hops), flush=True)


def floor_hops() -> list[float]:
    """What no ring on this machine can go below: stamp, copy the frame, wake the other process."""
    memory_fd, bell_fd = create_memory("bench-floor", 64 + FRAME_BYTES), create_bell()
    memory = SharedMemory(memory_fd)
    receiver = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bench_ring", str(memory_fd), str(bell_fd)],
        pass_fds=(memory_fd, bell_fd),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == b"ready\n"
        for frame in paced_frames():
            memory.words[0] = time.monotonic_ns()
            memory.view[64 : 64 + FRAME_BYTES] = frame
            memory.words[1] += 1
            ring_bell(bell_fd)
        return json.loads(receiver.stdout.readline())[WARM_UP:]
    finally:
        receiver.kill()
        receiver.wait()
        if receiver.stdout is not None:
            receiver.stdout.close()
        memory.close()
        os.close(memory_fd)
        os.close(bell_fd)


def rows() -> list[dict[str, Any]]:
    """The best of `ROUNDS` rounds of each way, the rounds in turns, for P50 and for P99.

    The best, because on a shared machine others' load is in every round, and more of it in some.
    """
    ways = {"ring": ring_hops, "mp": mp_hops, "torch": torch_hops, "floor": floor_hops}
    rounds: dict[str, list[list[float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, measure in ways.items():
            rounds[name].append(measure())
    p50 = {name: min(map(statistics.median, all_of)) for name, all_of in rounds.items()}
    p99 = {
        name: min(statistics.quantiles(hops, n=100)[98] for hops in all_of)
        for name, all_of in rounds.items()
    }

    def row(name: str, value: float, against: str, against_value: float) -> dict[str, Any]:
        return {
            "name": name,
            "value": round(value, 1),
            "unit": "us",
            "against": against,
            "against_value": round(against_value, 1),
            "ratio": round(against_value / value, 2),
        }

    return [
        row("ring_hop_vs_mp_queue", p50["ring"], "multiprocessing.Queue, P50", p50["mp"]),
        row("ring_hop_vs_torch_queue", p50["ring"], "torch.multiprocessing, P50", p50["torch"]),
        row("ring_hop_vs_mp_queue_p99", p99["ring"], "multiprocessing.Queue, P99", p99["mp"]),
        row("ring_hop_vs_torch_queue_p99", p99["ring"], "torch.multiprocessing, P99", p99["torch"]),
        row("ring_hop_vs_floor", p50["ring"], "copy and wake-up without a ring, P50", p50["floor"]),
    ]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        receive_bare(int(sys.argv[1]), int(sys.argv[2]))
    else:
        receive_from_ring(json.loads(sys.argv[1]))
