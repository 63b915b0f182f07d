"""What is special about rings in device memory, on a stand-in driver: agreeing, falling back."""

import ctypes
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_stages.cuda_driver import CudaError, LibCuda, NoCuda, open_driver
from gpu_stages.cuda_ring import CudaConsumer, CudaProducer, CudaRing, device_extent
from gpu_stages.header import Header, MessageKind
from gpu_stages.host_ring import HostProducer, HostRing
from gpu_stages.ring import RingSpec, Taken
from gpu_stages.rings import make_ring, open_consumer, open_producer
from gpu_stages.stage import PartTooLarge
from tests.support.fake_cuda import FakeArray, FakeCuda

HEADER = Header(MessageKind.TICK_PICTURE, 0, 1, 1)
SPEC = RingSpec(4, 4096)


@pytest.fixture
def ring() -> Iterator[CudaRing]:
    made = CudaRing("test", SPEC)
    yield made
    made.close()


@pytest.fixture
def source(tmp_path: Path) -> FakeCuda:
    return FakeCuda(tmp_path)


@pytest.fixture
def sink(tmp_path: Path) -> FakeCuda:
    return FakeCuda(tmp_path)


def take(consumer: CudaConsumer) -> Taken:
    taken = consumer.take()
    assert taken is not None
    return taken


def hop(producer: CudaProducer, consumer: CudaConsumer, array: FakeArray, sink: FakeCuda) -> bool:
    """Send sound and a picture; whether the picture stayed on the device. It is whole anyhow."""
    producer.publish(HEADER, [b"sound", array, b"tail"])
    taken = take(consumer)
    assert (bytes(taken.parts[0]), bytes(taken.parts[2])) == (b"sound", b"tail")
    if not taken.on_device:
        assert bytes(taken.parts[1]) == b"picture"
        consumer.release(taken)
        return False
    part = taken.on_device[1]
    assert part is not None
    assert bytes(taken.parts[1]) == b""
    assert sink.read(part.address, part.size_bytes) == b"picture"
    assert part.address % 512 == 0
    assert part.__cuda_array_interface__["data"] == (part.address, False)
    assert part.__cuda_array_interface__["shape"] == (7,)
    consumer.release(taken)
    return True


def test_an_arena_is_exported_once_and_opened_once(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda
) -> None:
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    array = source.array(b"picture")
    allocated = source.calls.count("allocate")
    assert [hop(producer, consumer, array, sink) for _ in range(20)] == [False] + [True] * 19
    assert source.calls.count("allocate") == allocated + 1
    assert source.calls.count("export") == sink.calls.count("open_handle") == 1


def test_a_copy_is_complete_before_it_is_published_and_read_before_it_is_given_back(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda
) -> None:
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    array = source.array(b"picture")
    hop(producer, consumer, array, sink)
    source.calls.clear()
    sink.calls.clear()
    hop(producer, consumer, array, sink)
    assert source.calls == ["copy", "complete"]
    assert sink.calls == ["synchronize"]


def test_host_parts_alone_never_touch_the_device(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda
) -> None:
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    producer.publish(HEADER, [b"a", b"b"])
    consumer.release(take(consumer))
    assert source.calls == sink.calls == []


def test_another_device_is_no_place_to_share(
    ring: CudaRing, source: FakeCuda, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = FakeCuda(tmp_path, uuid=b"another device..")
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), other)
    array = source.array(b"picture")
    assert not any(hop(producer, consumer, array, other) for _ in range(3))
    assert other.calls.count("open_handle") == 0
    said = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert said == [
        "frames come through host memory: the next stage is on another device",
        "frames go through host memory: the next stage is on another device",
    ], "once on each side"


@pytest.mark.parametrize(("side", "call"), [("sink", "open_handle"), ("source", "export")])
def test_a_driver_that_refuses_leaves_the_way_through_host_memory(
    ring: CudaRing,
    source: FakeCuda,
    sink: FakeCuda,
    caplog: pytest.LogCaptureFixture,
    side: str,
    call: str,
) -> None:
    array = source.array(b"picture")
    (sink if side == "sink" else source).fail.add(call)
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    assert not any(hop(producer, consumer, array, sink) for _ in range(3))
    assert "error 999 (stand-in)" in caplog.text


def test_a_stage_that_takes_no_device_parts_gets_them_in_host_memory(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda
) -> None:
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), None)
    array = source.array(b"picture")
    assert not any(hop(producer, consumer, array, sink) for _ in range(3))


def test_a_copy_that_fails_publishes_nothing_and_costs_no_slot(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda
) -> None:
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    array = source.array(b"picture")
    hop(producer, consumer, array, sink)
    source.fail.add("complete")
    with pytest.raises(CudaError):
        producer.publish(HEADER, [array])
    assert consumer.take() is None
    assert producer.room() == SPEC.slots
    source.fail.clear()
    assert hop(producer, consumer, array, sink)


def test_a_new_producer_s_arena_takes_the_place_of_the_dead_one_s(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda, tmp_path: Path
) -> None:
    first, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    hop(first, consumer, source.array(b"picture"), sink)
    hop(first, consumer, source.array(b"picture"), sink)
    ring.reset()
    assert consumer.take() is None
    again = FakeCuda(tmp_path)
    second = CudaProducer(ring.as_json(), again)
    array = again.array(b"picture")
    assert [hop(second, consumer, array, sink) for _ in range(3)] == [False, True, True]
    assert sink.calls.count("open_handle") == 2
    assert sink.calls.count("close_handle") == 1
    assert sink.open_count() == 1


def test_a_new_consumer_imports_before_the_producer_may_write(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda, tmp_path: Path
) -> None:
    producer, first = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    array = source.array(b"picture")
    hop(producer, first, array, sink)
    assert hop(producer, first, array, sink)
    ring.reset()
    assert producer.room() == 0
    refusing = FakeCuda(tmp_path)
    refusing.fail.add("open_handle")
    second = CudaConsumer(ring.as_json(), refusing)
    assert not hop(producer, second, array, refusing), "not into an arena that it cannot open"
    ring.reset()
    third_sink = FakeCuda(tmp_path)
    third = CudaConsumer(ring.as_json(), third_sink)
    assert hop(producer, third, array, third_sink)


def test_memory_is_not_freed_under_an_importer(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda
) -> None:
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    hop(producer, consumer, source.array(b"picture"), sink)
    hop(producer, consumer, source.array(b"picture"), sink)
    producer.close()
    assert "free" not in source.calls
    assert consumer.take() is None
    assert sink.open_count() == 0, "the consumer let go of what was withdrawn"


def test_memory_is_not_freed_while_an_import_is_under_way(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer closes between the consumer's opening of the handle and its word that it did:
    the stand-in refuses to free what is open."""
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    opened = sink.open_handle

    def open_then_lose_the_producer(handle: bytes) -> int:
        address = opened(handle)
        producer.close()
        return address

    monkeypatch.setattr(sink, "open_handle", open_then_lose_the_producer)
    producer.publish(HEADER, [source.array(b"picture")])
    consumer.take()
    assert "open_handle" in sink.calls
    assert "free" not in source.calls


@pytest.mark.parametrize("refused", [False, True])
def test_memory_is_freed_on_the_consumer_s_word(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda, refused: bool
) -> None:
    producer = CudaProducer(ring.as_json(), source)
    consumer = CudaConsumer(ring.as_json(), None if refused else sink)
    array = source.array(b"picture")
    for _ in range(2):
        producer.publish(HEADER, [array])
        consumer.release(take(consumer))
    if not refused:
        assert sink.open_count() == 1
        consumer.close()
    producer.close()
    assert source.calls.count("free") == 1


def test_without_the_consumer_s_word_the_memory_stays(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda
) -> None:
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    producer.publish(HEADER, [source.array(b"picture")])
    producer.close()
    assert "free" not in source.calls, "an import may be under way"
    consumer.close()


def test_what_does_not_fit_the_device_slot_is_refused(
    ring: CudaRing, source: FakeCuda, sink: FakeCuda
) -> None:
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    hop(producer, consumer, source.array(b"picture"), sink)
    with pytest.raises(PartTooLarge):
        producer.publish(HEADER, [source.array(bytes(4097))])
    with pytest.raises(PartTooLarge):
        producer.publish(HEADER, [source.array(bytes(10))] * 5)
    assert producer.room() == SPEC.slots


def test_the_extent_of_an_array_is_read_from_its_interface() -> None:
    assert device_extent(FakeArray(64, (2, 3, 4), None, "<f4")) == (64, 96)
    assert device_extent(FakeArray(64, (2, 3), (12, 4), "<f4")) == (64, 24)
    assert device_extent(FakeArray(0, (0,), None, "|u1")) == (0, 0)
    with pytest.raises(ValueError, match="contiguous"):
        device_extent(FakeArray(64, (2, 3), (4, 8), "<f4"))


def test_stages_on_one_device_are_joined_by_a_device_ring() -> None:
    kinds: list[object] = []
    for pair in [("cuda:0", "cuda:0"), ("cuda:0", "cuda:1"), ("cpu", "cuda:0"), ("cpu", "cpu")]:
        ring = make_ring("r", SPEC, *pair)
        kinds.append(ring.as_json()["kind"])
        ring.close()
    assert kinds == ["cuda", "host", "host", "host"]


def test_without_a_driver_a_device_ring_is_a_host_ring(
    ring: CudaRing, caplog: pytest.LogCaptureFixture
) -> None:
    producer = open_producer(ring.as_json())
    consumer = open_consumer(ring.as_json(), None, "no usable CUDA driver: libcuda.so.1")
    assert type(producer) is HostProducer
    producer.publish(HEADER, [b"picture"])
    taken = consumer.take()
    assert taken is not None
    assert bytes(taken.parts[0]) == b"picture"


@pytest.mark.parametrize("device", ["cpu", "cuda:x", "metal", ""])
def test_a_device_that_is_none_is_refused(device: str) -> None:
    with pytest.raises(NoCuda):
        open_driver(device)


class Library:
    """libcuda as ctypes shows it: every function answers 0, but for those that shall fail."""

    def __init__(self, fail: str = "", ipc: int = 1) -> None:
        self.asked: list[str] = []
        self._fail = fail
        self._ipc = ipc
        self._made: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        if name not in self._made:
            self._made[name] = self._function(name)
        return self._made[name]

    def _function(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.asked.append(name)
            if name == "cuDeviceGetAttribute":
                arguments[0]._obj.value = self._ipc
            elif name == "cuMemAlloc_v2":
                arguments[0]._obj.value = 0x7000_0200
            elif name == "cuMemGetAddressRange_v2":
                arguments[0]._obj.value = 0x7000_0000
            elif name == "cuGetErrorString":
                arguments[1]._obj.value = b"invalid device context"
            return 201 if name == self._fail else 0

        return call


def test_the_driver_s_calls_are_made_in_order() -> None:
    library = Library()
    driver = LibCuda(0, library)
    assert library.asked == [
        "cuInit",
        "cuDeviceGet",
        "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuEventCreate",
    ]
    address = driver.allocate(100)
    handle, offset = driver.export(address)
    assert (address, len(handle), offset) == (0x7000_0200, 64, 0x200)
    driver.copy(1, 2, 3)
    driver.complete()
    assert library.asked[-3:] == ["cuMemcpyDtoDAsync_v2", "cuEventRecord", "cuEventSynchronize"]
    assert len(driver.uuid()) == 16
    assert driver._lib.cuIpcOpenMemHandle_v2.restype is ctypes.c_int


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (Library(fail="cuInit"), r"cuInit failed: error 201 \(invalid device context\)"),
        (Library(fail="cuDeviceGet"), "cuDeviceGet failed"),
        (Library(ipc=0), "no memory that other processes can open"),
        (object(), "no usable CUDA driver"),
    ],
)
def test_a_device_that_cannot_be_used_is_said(library: Any, words: str) -> None:
    with pytest.raises(NoCuda, match=words):
        LibCuda(0, library)


def test_a_host_ring_offers_no_device_memory() -> None:
    ring = HostRing("plain", SPEC)
    assert "page_fd" not in ring.as_json()
    ring.close()
