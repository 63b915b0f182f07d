"""Looks on disk: the same bits, whatever else lies there."""

import os
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gpu_stages.face import look_cache
from gpu_stages.face.bake import Baked
from gpu_stages.face.look_cache import UNUSED_S_MAX, baked_look, cache_folder, key_of
from gpu_stages.face.looks import LOOKS, Look

CPU = torch.device("cpu")


@pytest.fixture
def sculpted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The looks that were really sculpted; a small stand-in is as good as a second of work."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names: list[str] = []

    def bake(look: Look, device: torch.device) -> Baked:
        names.append(look.name)
        random = torch.Generator().manual_seed(len(look.name))
        return Baked(*(torch.rand(n, 3, 4, generator=random) for n in (4, 1, 1, 4)))

    monkeypatch.setattr(look_cache, "bake", bake)
    return names


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings, however logging is set up in this process."""
    said: list[str] = []
    quiet = SimpleNamespace(warning=lambda event, **more: said.append(event))
    monkeypatch.setattr(look_cache, "log", quiet)
    return said


def same(a: Baked, b: Baked) -> bool:
    return all(torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(Baked))


def test_a_look_is_sculpted_once(sculpted: list[str], tmp_path: Path) -> None:
    first = [baked_look(look, CPU) for look in LOOKS]
    again = [baked_look(look, CPU) for look in LOOKS]
    assert sculpted == [look.name for look in LOOKS]
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert cache_folder() == tmp_path / "dhsched" / "looks"
    assert len(list(cache_folder().iterdir())) == len(LOOKS), "no temporary file is left"


def test_what_a_look_is_made_from_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {key_of(look, CPU) for look in LOOKS}
    keys.add(key_of(replace(LOOKS[0], lip="#c9786c"), CPU))
    monkeypatch.setattr(look_cache, "_code_digest", lambda: "other code")
    keys.add(key_of(LOOKS[0], CPU))
    monkeypatch.undo()
    monkeypatch.setattr(torch, "__version__", "99.0")
    keys.add(key_of(LOOKS[0], CPU))
    assert len(keys) == len(LOOKS) + 3


DAMAGE = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:-7],
    "other": lambda data: b"PNG" + data,
    "flipped": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "header": lambda data: data[:20] + b"\0" * 8 + data[28:],
    "length": lambda data: data[:15] + b"\xff\xff\xff\xff" + data[19:],
    "longer": lambda data: data + b"more",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_told_and_made_again(
    sculpted: list[str], damage: str, told: list[str]
) -> None:
    first = baked_look(LOOKS[0], CPU)
    (path,) = cache_folder().iterdir()
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert same(baked_look(LOOKS[0], CPU), first)
    assert told == ["look_cache_unusable"]
    assert same(baked_look(LOOKS[0], CPU), first)
    assert sculpted == ["clay", "clay"], "and then it is good again"


def test_a_folder_that_cannot_be_written_only_costs_time(
    sculpted: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: list[str],
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    baked_look(LOOKS[0], CPU)
    baked_look(LOOKS[0], CPU)
    assert sculpted == ["clay", "clay"]
    assert told.count("look_not_cached") == 2


def test_a_relative_cache_home_is_ignored_as_the_specification_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", "/home/anna")
    assert cache_folder() == Path("/home/anna/.cache/dhsched/looks")


def test_what_nobody_reads_is_removed_and_what_is_read_stays(sculpted: list[str]) -> None:
    baked_look(LOOKS[0], CPU)
    (used,) = cache_folder().iterdir()
    unused = used.with_name("clay-of-an-earlier-version.look")
    unused.write_bytes(used.read_bytes())
    long_ago_s = time.time() - UNUSED_S_MAX - 60
    for path in (used, unused):
        os.utime(path, (long_ago_s, long_ago_s))
    baked_look(LOOKS[0], CPU)  # read: in use again
    baked_look(LOOKS[1], CPU)  # written: the others are looked at
    assert used.exists()
    assert not unused.exists()


PROCESS = """
import sys, torch
from gpu_stages.face import look_cache
from gpu_stages.face.bake import Baked
from gpu_stages.face.looks import LOOKS
planes = [torch.full((n, 200, 200), 0.5) for n in (4, 1, 1, 4)]
look_cache.bake = lambda look, device: Baked(*planes)
for _ in range(20):
    got = look_cache.baked_look(LOOKS[0], torch.device("cpu"))
    assert float(got.back.min()) == float(got.head.max()) == 0.5
    for path in look_cache.cache_folder().glob("*.look"):
        path.unlink(missing_ok=True)
"""


def test_processes_that_write_and_remove_at_once_see_whole_looks(
    tmp_path: Path,
) -> None:
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS], env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in processes:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        assert b"unusable" not in out


def test_the_real_looks_come_back_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with torch.inference_mode():
        made = baked_look(LOOKS[0], CPU)
        read = baked_look(LOOKS[0], CPU)
    assert same(made, read)
    assert made.head is not read.head
