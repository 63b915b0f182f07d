"""Frames that stay on the device from the renderer to the next stage, on the stand-in driver."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from gpu_stages import cuda_driver, stage_main
from gpu_stages.control import Plan
from gpu_stages.cuda_driver import NoCuda
from gpu_stages.cuda_ring import CudaConsumer, CudaProducer, CudaRing
from gpu_stages.face.parameters import FACE_PARAMETERS
from gpu_stages.header import Header, MessageKind
from gpu_stages.host_ring import HostConsumer, HostProducer, HostRing
from gpu_stages.live_table import LiveRow
from gpu_stages.outbox import RingOutbox
from gpu_stages.ring import RingConsumer, RingProducer, RingSpec
from gpu_stages.rings import open_consumer, open_producer
from gpu_stages.stage import Message, Outbox, Stage
from gpu_stages.stages.render import RenderStage
from schemas.media import TICK_SAMPLES
from tests.support.fake_cuda import FakeArray, FakeCuda
from tests.support.stage_fakes import live_row, part_view

SIZE = 64
SPEC = RingSpec(8, 4096 + SIZE * SIZE * 3)
PCM = part_view(np.arange(TICK_SAMPLES, dtype=np.int16))


class Drawn:
    """What the renderer gives on a GPU: frames in device memory, and one way down for them all."""

    def __init__(self, frames: torch.Tensor, device: FakeCuda, downs: list[int]) -> None:
        self._frames, self._device, self._downs = frames, device, downs

    def __iter__(self) -> Iterator[FakeArray]:
        return iter([self._device.array(frame.numpy().tobytes()) for frame in self._frames])

    def cpu(self) -> torch.Tensor:
        self._downs.append(len(self._frames))
        return self._frames


class OnGpu(RenderStage):
    """The bundled stage as it is on a GPU; what it draws is drawn here and put on the stand-in."""

    def __init__(self, device: FakeCuda) -> None:
        super().__init__()
        self.downs: list[int] = []
        self.load({"warm_sizes_px": [[SIZE, SIZE]]}, "cpu")
        assert self._renderer is not None
        render = self._renderer.render
        self._renderer.render = lambda *asked: Drawn(render(*asked), device, self.downs)  # type: ignore[method-assign]
        self._on_device = True


def batch(frame: int) -> tuple[list[Message], list[LiveRow]]:
    rows = [replace(live_row(slot), width_px=SIZE, height_px=SIZE) for slot in range(2)]
    face = np.full(FACE_PARAMETERS, frame / 10, np.float32)
    headers = [
        Header(MessageKind.TICK_MOTION, row.live_slot, row.binding, 1, frame_index=frame)
        for row in rows
    ]
    return [Message(header, (PCM, part_view(face))) for header in headers], rows


def on_cpu(frame: int) -> list[bytes]:
    """The pictures of the same batch by the stage as it is without a GPU."""
    stage, ring = RenderStage(), HostRing("cpu", SPEC)
    stage.load({"warm_sizes_px": [[SIZE, SIZE]]}, "cpu")
    producer, consumer = HostProducer(ring.handle), HostConsumer(ring.handle)
    stage.process(*batch(frame), RingOutbox(producer, print))
    pictures = [bytes(taken.parts[1]) for taken in iter(consumer.take, None)]
    for end in (producer, consumer, ring):
        end.close()
    return pictures


def arrived(consumer: RingConsumer, sink: FakeCuda) -> tuple[list[bytes], int]:
    """The pictures that came, and how many of them by the device; the sound is whole anyhow."""
    pictures: list[bytes] = []
    by_device = 0
    for taken in iter(consumer.take, None):
        assert bytes(taken.parts[0]) == bytes(PCM)
        part = taken.on_device[1] if taken.on_device else None
        by_device += part is not None
        pictures.append(bytes(taken.parts[1]) if part is None else sink.read(*extent(part)))
        consumer.release(taken)
    return pictures, by_device


def extent(part: Any) -> tuple[int, int]:
    return part.address, part.size_bytes


@pytest.fixture
def ring() -> Iterator[CudaRing]:
    made = CudaRing("picture", SPEC)
    yield made
    made.close()


@pytest.fixture
def devices(tmp_path: Path) -> tuple[FakeCuda, FakeCuda]:
    return FakeCuda(tmp_path), FakeCuda(tmp_path)


def test_frames_stay_on_the_device_once_the_next_stage_has_opened_the_arena(
    ring: CudaRing, devices: tuple[FakeCuda, FakeCuda]
) -> None:
    source, sink = devices
    producer, consumer = CudaProducer(ring.as_json(), source), CudaConsumer(ring.as_json(), sink)
    stage, out = OnGpu(source), RingOutbox(producer, print)
    by_device: list[int] = []
    for frame in range(4):
        stage.process(*batch(frame), out)
        pictures, count = arrived(consumer, sink)
        by_device.append(count)
        assert pictures == on_cpu(frame), "not a bit differs from the way over the host"
    assert by_device == [0, 2, 2, 2], "the first batch goes while the arena is being offered"
    assert stage.downs == [2], "and comes down at once, not frame by frame"
    assert source.calls.count("copy_to_host") == 0
    consumer.close()
    producer.close()


def test_a_stage_that_takes_none_gets_them_by_one_copy_and_the_reason_is_logged(
    ring: CudaRing, devices: tuple[FakeCuda, FakeCuda], caplog: pytest.LogCaptureFixture
) -> None:
    source, sink = devices
    producer = CudaProducer(ring.as_json(), source)
    consumer = CudaConsumer(ring.as_json(), None, "no encoder takes frames on this device")
    stage, out = OnGpu(source), RingOutbox(producer, print)
    with caplog.at_level(logging.WARNING):
        for frame in range(3):
            stage.process(*batch(frame), out)
            assert arrived(consumer, sink) == (on_cpu(frame), 0)
    assert stage.downs == [2, 2, 2]
    assert source.calls.count("copy") == source.calls.count("copy_to_host") == 0
    told = [r.getMessage() for r in caplog.records if "frames go through" in r.getMessage()]
    assert told == ["frames go through host memory: no encoder takes frames on this device"]
    consumer.close()
    producer.close()


def test_without_a_gpu_the_ring_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way over the host is what it was, also where a ring would take frames on a device."""
    monkeypatch.setattr(RingOutbox, "keeps_on_device", lambda _self: pytest.fail("asked"))
    assert len(on_cpu(0)) == 2


class Picky(Stage):
    """Takes parts on the device where its settings say that it can."""

    name: ClassVar[str] = "picky"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def accepts_device_parts(self, settings: Mapping[str, object], device: str) -> bool:
        self.asked.append(device)
        return bool(settings["can"])

    def load(self, settings: Mapping[str, object], device: str) -> None:
        pass

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        pass


class Ends:
    """What `stage_main` opens for a stage, and with what; nothing is really opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, no_cuda: str = "") -> None:
        self.opened: list[str] = []
        self.incoming: tuple[object, str] = (None, "")
        self.outgoing: object = None
        self._no_cuda = no_cuda
        monkeypatch.setattr(cuda_driver, "open_driver", self._open_driver)
        monkeypatch.setattr(stage_main, "open_consumer", self._open_consumer)
        monkeypatch.setattr(stage_main, "open_producer", self._open_producer)
        monkeypatch.setattr(stage_main, "LiveTableReader", lambda _fd: None)
        monkeypatch.setattr(stage_main, "_low_fd", lambda fd: fd)

    def _open_driver(self, device: str) -> str:
        self.opened.append(device)
        if self._no_cuda:
            raise NoCuda(self._no_cuda)
        return f"driver of {device}"

    def _open_consumer(self, _handle: object, driver: object, why_not: str) -> None:
        self.incoming = (driver, why_not)

    def _open_producer(self, _handle: object, *, driver: object) -> None:
        self.outgoing = driver

    def open(self, incoming: str, outgoing: str, *, can: bool) -> list[str]:
        """The devices that the stage was asked about."""
        stage = Picky()
        plan = Plan(
            "picky", "x:Picky", "cuda:2", {"can": can}, None, None, 1, 0, 1, 0, 0,
            {"kind": incoming}, {"kind": outgoing},
        )  # fmt: skip
        stage_main._open_ends(plan, 0, stage)
        return stage.asked


def test_a_stage_that_takes_frames_on_its_device_gets_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = Ends(monkeypatch)
    assert ends.open("cuda", "host", can=True) == ["cuda:2"]
    assert ends.incoming == ("driver of cuda:2", "")


def test_a_stage_that_takes_none_opens_no_device_and_makes_no_context_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = Ends(monkeypatch)
    assert ends.open("cuda", "host", can=False) == ["cuda:2"]
    assert (ends.incoming, ends.outgoing, ends.opened) == ((None, ""), None, [])


def test_a_stage_that_only_sends_to_a_ring_in_device_memory_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = Ends(monkeypatch)
    assert ends.open("host", "cuda", can=True) == []
    assert (ends.incoming, ends.outgoing) == ((None, ""), "driver of cuda:2")


def test_without_a_driver_the_frames_go_through_the_host_and_it_is_said_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = Ends(monkeypatch, no_cuda="no usable CUDA driver: libcuda.so.1")
    ends.open("cuda", "cuda", can=True)
    assert ends.incoming == (None, "no usable CUDA driver: libcuda.so.1")
    assert ends.outgoing is None
    assert "frames go through host memory: no usable CUDA driver" in capsys.readouterr().err


def test_a_ring_in_host_memory_keeps_nothing_on_a_device() -> None:
    ring = HostRing("host", SPEC)
    producer = open_producer(ring.as_json())
    assert not producer.keeps_on_device()
    producer.close()
    ring.close()


def test_a_producer_without_a_driver_sends_by_the_host_whatever_the_ring_is(
    ring: CudaRing,
) -> None:
    producer: RingProducer = open_producer(ring.as_json(), driver=None)
    consumer = open_consumer(ring.as_json(), None, "nothing here")
    assert not producer.keeps_on_device()
    producer.publish(Header(MessageKind.TICK_PICTURE, 0, 1, 1), [PCM, b"picture"])
    taken = consumer.take()
    assert taken is not None
    assert bytes(taken.parts[1]) == b"picture"
    consumer.close()
    producer.close()
