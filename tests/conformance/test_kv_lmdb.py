"""What is special about LMDB: several processes, killed and stopped ones, files and threads."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from ownership.kv import (
    StoreAway,
    StoreClosed,
    StoreFull,
    StoreMisconfigured,
    Transaction,
    Unknown,
    int64,
)
from ownership.lmdb_store import open_lmdb
from ownership.open import open_database
from tests.conformance.test_kv_memory import append

ROOT = Path(__file__).parents[2]


@contextmanager
def peer(path: Path, *task: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.kv_peer", f"lmdb://{path}?sync=off", *task],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def test_increments_of_several_processes_are_never_lost(tmp_path: Path) -> None:
    async with open_lmdb(tmp_path, sync=False) as db:

        def body(tr: Transaction) -> int:
            number = int64(tr.get(b"n")) + 1
            tr.set(b"n", number.to_bytes(8, "little"))
            return number

        with (
            peer(tmp_path, "increment", "a", "300") as a,
            peer(tmp_path, "increment", "b", "300") as b,
        ):
            mine = [await db.run(body) for _ in range(100)]
            assert await asyncio.to_thread(a.wait, 60) == 0
            assert await asyncio.to_thread(b.wait, 60) == 0
        theirs = await db.read(lambda tr: tr.get_range(b"by/", b"by0"))
        numbers = [int(value) for _, value in theirs]
        assert sorted(mine + numbers) == list(range(1, 701))


async def test_a_busy_process_does_not_starve_the_others(tmp_path: Path) -> None:
    async with open_lmdb(tmp_path, sync=False) as db:
        with peer(tmp_path, "pairs") as busy:
            assert line(busy)
            loop = asyncio.get_running_loop()
            longest_s = 0.0
            for _ in range(30):
                begun_s = loop.time()
                await db.run(lambda tr: tr.add(b"c", 1))
                longest_s = max(longest_s, loop.time() - begun_s)
            assert longest_s < 2.0


async def test_neither_does_one_that_never_pauses(tmp_path: Path) -> None:
    """LMDB's lock is not fair by itself; whoever waits gets it in a bounded time nevertheless."""
    async with open_lmdb(tmp_path, sync=False) as db:
        with (
            peer(tmp_path, "increment", "a", "1000000"),
            peer(tmp_path, "increment", "b", "1000000"),
        ):
            watch = db.watch(b"n")
            assert await watch.changed(30)
            watch.close()
            loop = asyncio.get_running_loop()
            longest_s = 0.0
            for _ in range(30):
                begun_s = loop.time()
                await db.run(lambda tr: tr.add(b"c", 1))
                longest_s = max(longest_s, loop.time() - begun_s)
            assert longest_s < 2.0


async def test_a_watch_sees_other_processes(tmp_path: Path) -> None:
    async with open_lmdb(tmp_path, sync=False) as db:
        watch = db.watch(b"n")
        with peer(tmp_path, "increment", "a", "1"):
            assert await watch.changed(30)
        watch.close()


async def test_a_writer_killed_midway_leaves_whole_transactions(tmp_path: Path) -> None:
    async with open_lmdb(tmp_path, sync=False) as db:
        for _ in range(4):
            with peer(tmp_path, "pairs") as process:
                told = 0
                for _ in range(20):
                    told = int(line(process))
                process.send_signal(signal.SIGKILL)
                process.wait()
            left, right = await db.read(lambda tr: tr.get_many([b"left", b"right"]))
            assert left == right
            assert int64(left) >= told
            await db.run(lambda tr: tr.add(b"after", 1))
        assert int64(await db.read(lambda tr: tr.get(b"after"))) == 4


async def test_a_stopped_writer_makes_the_others_answer_away(tmp_path: Path) -> None:
    async with open_lmdb(tmp_path, sync=False, answer_s_max=0.3) as db:
        with peer(tmp_path, "stop") as process:
            assert line(process) == "stopping"
            waiting = [
                asyncio.create_task(db.attempt(lambda tr, i=i: tr.set(b"late%d" % i, b"")))
                for i in range(3)
            ]
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(result) for result in done] == [StoreAway] * 3
            # Reading needs no lock.
            assert await db.read(lambda tr: tr.get(b"late0")) is None
            process.send_signal(signal.SIGCONT)
            assert line(process) == "went on"
        # What was answered "away" is never applied.
        async with open_lmdb(tmp_path, sync=False) as patient:
            await patient.run(lambda tr: tr.set(b"after", b""))
        everything = await db.read(lambda tr: tr.get_range(b"", b"\xff"))
        assert everything == [(b"after", b""), (b"from the stopped one", b"")]


async def test_a_killed_reader_gives_its_slot_back(tmp_path: Path) -> None:
    program = (
        "import lmdb, os, signal, sys\n"
        "env = lmdb.open(sys.argv[1], map_size=1 << 30, max_readers=512)\n"
        "txn = env.begin(); txn.get(b'k')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    await asyncio.to_thread(subprocess.run, command, check=False, timeout=30)
    async with open_lmdb(tmp_path, sync=False) as db:
        await db.read(lambda tr: tr.get(b"k"))
        readers = db._writer.env.readers()
        assert len(readers.strip().splitlines()) <= 2, readers


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def store_threads() -> set[str]:
    """All threads, but those of the event loop's own pool, which starts them as it likes."""
    names = {thread.name for thread in threading.enumerate()}
    return {name for name in names if not name.startswith("asyncio_")}


async def test_nothing_is_left_after_closing(tmp_path: Path) -> None:
    async def use(path: Path) -> None:
        async with open_lmdb(path, sync=False) as db:
            db.watch(b"k")
            await asyncio.gather(*(db.run(lambda tr: tr.add(b"k", 1)) for _ in range(5)))
            await db.read(lambda tr: tr.get(b"k"))

    await use(tmp_path / "first")
    gc.collect()
    files, threads = open_files(), store_threads()
    for i in range(5):
        await use(tmp_path / f"store{i}")
    gc.collect()
    assert open_files() == files
    assert store_threads() == threads
    assert "dhsched-lmdb" not in threads


async def test_two_users_in_one_process_share_the_environment(tmp_path: Path) -> None:
    first, second = open_lmdb(tmp_path, sync=False), open_lmdb(tmp_path / ".", sync=False)
    await first.run(lambda tr: tr.set(b"k", b"v"))
    await first.close()
    assert await second.read(lambda tr: tr.get(b"k")) == b"v"
    await second.run(lambda tr: tr.set(b"k", b"w"))
    with pytest.raises(StoreMisconfigured, match="sync"):
        open_lmdb(tmp_path, sync=True)
    await second.close()


async def test_use_after_a_fork_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_lmdb(tmp_path, sync=False) as db:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(StoreClosed, match="fork"):
                await db.read(lambda tr: tr.get(b"k"))


async def test_a_full_map_says_so_and_goes_on(tmp_path: Path) -> None:
    async with open_lmdb(tmp_path, sync=False, map_gib=1 / 1024) as db:
        await db.run(lambda tr: tr.set(b"small", b"1"))
        with pytest.raises(StoreFull, match="map_gib"):
            await db.run(lambda tr: [tr.set(b"big%03d" % i, b"x" * 90_000) for i in range(20)])
        good, bad = await asyncio.gather(
            db.run(lambda tr: tr.set(b"small", b"2")),
            db.run(lambda tr: [tr.set(b"big%03d" % i, b"x" * 90_000) for i in range(20)]),
            return_exceptions=True,
        )
        assert good is None
        assert isinstance(bad, StoreFull)
        assert await db.read(lambda tr: tr.get_range(b"", b"\xff")) == [(b"small", b"2")]


async def test_a_commit_is_flushed_by_default(tmp_path: Path) -> None:
    async with open_lmdb(tmp_path) as db:
        await db.run(lambda tr: tr.set(b"k", b"v"))
        assert db._writer.env.flags()["sync"] is True
        assert db._writer.env.flags()["metasync"] is True


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreMisconfigured, match="not a directory"):
        open_lmdb(tmp_path / "file")
    with pytest.raises(StoreMisconfigured, match="not a directory"):
        open_lmdb(tmp_path / "file" / "below")


def test_a_store_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"no store" * 2000)
    with pytest.raises(StoreMisconfigured, match="cannot be opened"):
        open_lmdb(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreMisconfigured, match=r"may not be written|cannot be opened"):
        open_lmdb(tmp_path / "below")


def test_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "makedirs", refuse)
    with pytest.raises(StoreMisconfigured, match="may not be written"):
        open_lmdb(tmp_path)


def test_a_network_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ownership.lmdb_store._file_system", lambda _: "nfs4")
    with pytest.raises(StoreMisconfigured, match="local disk"):
        open_lmdb(tmp_path)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("lmdb://relative/path", "three slashes"),
        ("lmdb:relative", "three slashes"),
        ("lmdb:///tmp/x?sync=maybe", "maybe"),
        ("lmdb:///tmp/x?map_gib=-1", "size"),
        ("lmdb:///tmp/x?colour=red", "colour"),
        ("memory:?seed=1", "seed"),
        ("redis://host", "not a store URL"),
        ("", "not a store URL"),
    ],
)
async def test_a_url_that_is_none(url: str, says: str) -> None:
    with pytest.raises(StoreMisconfigured, match=says):
        await open_database(url)


async def test_a_url_with_a_space(tmp_path: Path) -> None:
    async with await open_database(f"lmdb://{tmp_path}/a%20store?sync=off&map_gib=0.5") as db:
        await db.run(lambda tr: tr.set(b"k", b"v"))
    assert (tmp_path / "a store" / "data.mdb").exists()


class FailingEnvironment:
    """The environment, with the next commits failing as LMDB would."""

    def __init__(self, env: lmdb.Environment, *errors: lmdb.Error) -> None:
        self._env = env
        self._errors = list(errors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def begin(self, *, write: bool = False, parent: Any = None) -> Any:
        if parent is not None:
            return self._env.begin(write=True, parent=parent.txn)
        txn = self._env.begin(write=write)
        return FailingTransaction(txn, self._errors) if write else txn


class FailingTransaction:
    def __init__(self, txn: lmdb.Transaction, errors: list[lmdb.Error]) -> None:
        self.txn = txn
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self.txn, name)

    def commit(self) -> None:
        if self._errors:
            self.txn.abort()
            raise self._errors.pop(0)
        self.txn.commit()


async def test_what_a_failed_commit_means(tmp_path: Path) -> None:
    async with open_lmdb(tmp_path, sync=False) as db:
        real = db._writer.env
        for error in (lmdb.DiskError("no space"), lmdb.MapFullError("full")):
            db._writer.env = FailingEnvironment(real, error)  # type: ignore[assignment]
            done = await asyncio.gather(
                *(db.run(lambda tr: tr.add(b"k", 1)) for _ in range(3)), return_exceptions=True
            )
            assert isinstance(done[0], StoreFull)
        db._writer.env = FailingEnvironment(real, lmdb.Error("input/output error"))  # type: ignore[assignment]
        outcome = await db.attempt(lambda tr: tr.add(b"k", 1))
        assert isinstance(outcome, Unknown)
        assert "input/output" in outcome.detail
        # `run` finds out by running the body again.
        db._writer.env = FailingEnvironment(real, lmdb.Error("input/output error"))  # type: ignore[assignment]
        assert await db.run(lambda tr: append(tr, "me")) == 0
        db._writer.env = real


async def test_an_environment_error_is_answered_not_swallowed(tmp_path: Path) -> None:
    """Whatever LMDB says, every waiting caller gets an answer."""
    async with open_lmdb(tmp_path, sync=False) as db:

        def breaks(_: Transaction) -> None:
            raise lmdb.PanicError("on purpose")

        done = await asyncio.gather(
            db.run(breaks), db.run(lambda tr: tr.set(b"k", b"v")), return_exceptions=True
        )
        assert isinstance(done[0], StoreAway)
        assert done[1] is None
