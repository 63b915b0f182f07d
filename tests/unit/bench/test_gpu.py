"""`make bench-gpu` where no GPU is: it says so; and its hops, between processes on the stand-in."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.bench import gpu, gpu_encode, gpu_hop, gpu_table
from tests.support.fake_nvenc import install
from tests.support.real_cuda import RealCuda, kernel_driver

PAGE = Path(__file__).parents[3] / "docs" / "gpu.md"


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["bench-gpu", *arguments])
    return gpu.main()


def test_without_a_gpu_it_says_that_it_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "no usable CUDA driver: libcuda.so.1"
    monkeypatch.setattr(gpu, "find_device", lambda device: (None, why))
    page, out = tmp_path / "gpu.md", tmp_path / "deep" / "out.json"
    page.write_text(PAGE.read_text())
    status = run_main(monkeypatch, "--out", str(out), "--markdown", str(page))
    assert status == gpu.EXIT_NO_GPU == 77
    written = json.loads(out.read_text())
    assert (written["schema"], written["ran"], written["reason"]) == (1, False, why)
    assert written["rows"] == []
    assert page.read_text() == PAGE.read_text()
    assert "No GPU here, nothing was measured" in capsys.readouterr().err


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gpu_hop.FakeDevice:
    monkeypatch.setenv("FAKE_CUDA", str(tmp_path))
    monkeypatch.setenv("DHSCHED_BENCH_FRAMES", "5")
    monkeypatch.setattr(gpu_hop, "FRAMES", 5)
    return gpu_hop.FakeDevice(tmp_path)


def test_a_frame_hops_between_processes_in_device_memory(stand_in: gpu_hop.FakeDevice) -> None:
    hops, by_device = gpu_hop.ring_hops(stand_in)
    assert len(hops) == 5
    assert by_device >= 5 + gpu_hop.WARM_UP - 6, "all but those sent before it was imported"
    assert min(hops) > 0


def test_a_frame_goes_round_by_the_host(stand_in: gpu_hop.FakeDevice) -> None:
    assert len(gpu_hop.host_hops(stand_in)) == 5
    assert stand_in.calls.count("copy_to_host") == 5 + gpu_hop.WARM_UP
    assert len(gpu_hop.copies(stand_in)) == 5


def test_each_encoder_is_measured_on_pictures_in_device_memory_or_says_why_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = install(monkeypatch)
    monkeypatch.setattr(gpu_encode, "PICTURES", 3)
    pictures = gpu_encode.drawn("cpu")
    found = gpu_encode.measure("cuda:0", pictures)
    measured = library.made[-1]
    assert measured.calls[0] == "Encode 2"
    assert measured.calls[1:] == ["Encode 0"] * 3 * gpu_encode.ROUNDS + ["EndEncode"]
    assert found.per_s.keys() | found.refused.keys() == {"pynvvideocodec", "h264_nvenc", "libx264"}
    assert found.per_s["pynvvideocodec"] > 0
    assert next(each["name"] for each in found.rows()) == "encode_fps_512_pynvvideocodec"
    library.fail["CreateEncoder"] = "no encoder on this card"
    found = gpu_encode.measure("cuda:0", pictures)
    assert "no encoder on this card" in found.refused["pynvvideocodec"]


def result(commit: str = "abc", **more: Any) -> dict[str, Any]:
    device = {"name": "NVIDIA H200", "cuda": "13.2", "driver": "580.95.05"}
    return {
        "at": "2027-01-02T03:04:05+00:00",
        "commit": commit,
        "machine": {"device": device},
        "conformance": {"passed": True},
        "rows": [
            {"name": "ipc_hop_1080p", "value": 41.4, "against_value": 12.3},
            {"name": "ipc_hop_1080p_vs_host", "value": 41.4, "against_value": 3210.0},
            {"name": "speaking_lives_512_gpu", "value": 24.0},
        ],
        **more,
    }


def test_a_run_becomes_a_line_of_the_table_the_newest_first() -> None:
    once = gpu_table.with_run(PAGE.read_text(), result())
    line = (
        "| 2027-01-02 | NVIDIA H200 | 580.95.05 (CUDA 13.2) | abc | passed | 41 | 12 | 3,210 | 24 |"
    )
    assert line in once.splitlines()
    assert gpu_table.EMPTY_LINE not in once
    twice = gpu_table.with_run(once, result("def", rows=[], conformance={})).splitlines()
    assert twice.index(line) == 1 + next(i for i, each in enumerate(twice) if "| def |" in each)
    assert "| failed | failed | failed | failed | failed |" in twice[twice.index(line) - 1]
    with pytest.raises(ValueError, match="no table"):
        gpu_table.with_run("# Nothing\n", result())


def test_a_step_that_fails_leaves_the_others_their_turn() -> None:
    run = gpu.Run("cuda:0", None, Console(quiet=True), 0.0)  # type: ignore[arg-type]
    done: list[str] = []

    def broken() -> None:
        raise ValueError("no such kernel")

    run.step("first", broken)
    run.step("second", lambda: done.append("second"))
    assert done == ["second"]
    assert run.failed == ["first: ValueError: no such kernel"]


class Library:
    """libcuda as ctypes shows it, every call answered by 0 but for `fail`."""

    def __init__(self, fail: str = "") -> None:
        self._fail = fail
        self._made: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        if name not in self._made:

            def call(*arguments: Any) -> int:
                if name == "cuDeviceGetAttribute":
                    arguments[0]._obj.value = 1
                elif name == "cuDeviceGetName":
                    arguments[0].value = b"NVIDIA H200"
                elif name == "cuDriverGetVersion":
                    arguments[0]._obj.value = 13020
                elif name == "cuMemcpyHtoD_v2":
                    assert arguments[2] == 3
                return 712 if name == self._fail else 0

            self._made[name] = call
        return self._made[name]


def test_the_real_driver_says_what_it_is(tmp_path: Path) -> None:
    driver = RealCuda("cuda:0", Library())
    about = driver.described()
    assert (about["name"], about["cuda"]) == ("NVIDIA H200", "13.2")
    driver.write(0x1000, memoryview(bytearray(3)))
    assert driver.pin(memoryview(bytearray(3)))
    assert not RealCuda("cuda:0", Library("cuMemHostRegister_v2")).pin(memoryview(bytearray(3)))
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep\n")
    assert kernel_driver(version) == "580.95.05"
    assert kernel_driver(tmp_path / "none") == ""
