"""What is special about FoundationDB: errors, outcomes, threads, watches, start-up.

On a stand-in for the bindings, so that our mistakes are found without a cluster.
"""

import asyncio
import os
import sys
import threading
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ownership.foundationdb_start import cluster_file, load_bindings
from ownership.foundationdb_store import FoundationDatabase, open_foundationdb
from ownership.foundationdb_transaction import at_commit, before_commit
from ownership.kv import (
    Committed,
    CommitUnknown,
    Conflict,
    StoreAway,
    StoreClosed,
    StoreLimit,
    StoreMisconfigured,
    Transaction,
    Unknown,
    int64,
)
from ownership.open import open_database
from ownership.retry import Retry
from tests.conformance.fdb_standin import CommitFate, FDBError, StandIn
from tests.conformance.test_kv_memory import append
from tests.support.wait import until


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fdb.cluster"
    path.write_text("# a comment\ntest:test@127.0.0.1:4500\n")
    return path


@pytest.fixture
async def fdb() -> AsyncIterator[StandIn]:
    bindings = StandIn()
    yield bindings
    bindings.cluster.stop()


@pytest.fixture
async def db(fdb: StandIn, file: Path) -> AsyncIterator[FoundationDatabase]:
    async with await open_foundationdb(
        str(file),
        bindings=fdb,
        retry=Retry(attempts_max=4),
        answer_s_max=1.0,
        watch_poll_s=0.05,
    ) as db:
        yield db


@pytest.mark.parametrize(
    ("code", "reading", "committing"),
    [
        (1007, Conflict, Conflict),
        (1009, Conflict, Conflict),
        (1020, Conflict, Conflict),
        (1037, Conflict, Conflict),
        (1042, Conflict, Conflict),
        (1213, Conflict, Conflict),
        (1021, Conflict, Unknown),
        (1039, Conflict, Unknown),
        (1031, StoreAway, Unknown),
        (1025, StoreAway, Unknown),
        (1101, StoreAway, Unknown),
        (1038, StoreAway, Unknown),
        (2101, StoreLimit, StoreLimit),
        (2102, StoreLimit, StoreLimit),
        (2103, StoreLimit, StoreLimit),
        (6000, StoreMisconfigured, StoreMisconfigured),
        (4242, StoreAway, Unknown),
    ],
)
def test_what_each_error_means(code: int, reading: type, committing: type) -> None:
    bindings: Any = StandIn
    assert type(before_commit(bindings, FDBError(code))) is reading
    assert type(at_commit(bindings, FDBError(code))) is committing


async def test_limits_are_set_on_the_database(db: FoundationDatabase, fdb: StandIn) -> None:
    options = fdb.cluster.options
    assert options["set_transaction_timeout"] == 5000
    assert options["set_transaction_retry_limit"] == 0


async def test_reads_are_sent_together(db: FoundationDatabase, fdb: StandIn) -> None:
    """The network thread gets all of them before it answers one."""
    gate, sent = threading.Event(), []
    fdb.cluster.work.put(lambda: (gate.wait(10), sent.append(fdb.cluster.pipelined)))
    reading = asyncio.create_task(db.read(lambda tr: tr.get_many([b"%d" % i for i in range(20)])))
    await until(lambda: fdb.cluster.pipelined == 20)
    gate.set()
    assert await reading == [None] * 20
    assert sent == [20]


async def test_what_only_read_does_not_commit(db: FoundationDatabase, fdb: StandIn) -> None:
    await db.run(lambda tr: tr.get(b"k"))
    await db.read(lambda tr: tr.get(b"k"))
    assert fdb.cluster.commit_calls == 0


@pytest.mark.parametrize("code", [1007, 1009, 1020, 1037, 1213])
async def test_a_refused_commit_is_tried_again(
    db: FoundationDatabase, fdb: StandIn, code: int
) -> None:
    fdb.cluster.commits.extend([CommitFate(code), CommitFate(code)])
    assert await db.run(lambda tr: append(tr, "me")) == 0
    assert fdb.cluster.commit_calls == 3


@pytest.mark.parametrize("code", [1021, 1025, 1031, 1039, 1101])
@pytest.mark.parametrize("applied", [True, False])
async def test_an_unknown_commit_is_applied_once(
    db: FoundationDatabase, fdb: StandIn, code: int, applied: bool
) -> None:
    fdb.cluster.commits.append(CommitFate(code, applied))
    assert await db.run(lambda tr: append(tr, "me")) == 0
    assert await db.read(lambda tr: tr.get(b"log")) == b"me"


async def test_a_commit_that_lands_later_conflicts_with_the_repeat(
    db: FoundationDatabase, fdb: StandIn
) -> None:
    fdb.cluster.commits.append(CommitFate(1031, applied=True, later_s=0.1))
    await db.run(lambda tr: append(tr, "me"))
    await asyncio.sleep(0.2)
    assert await db.read(lambda tr: tr.get(b"log")) == b"me"


async def test_retries_end_in_what_is_known(db: FoundationDatabase, fdb: StandIn) -> None:
    fdb.cluster.commits.extend([CommitFate(1020)] * 4)
    with pytest.raises(StoreAway, match="conflicts"):
        await db.run(lambda tr: tr.set(b"k", b"v"))
    fdb.cluster.commits.extend([CommitFate(1020), CommitFate(1021), *[CommitFate(1020)] * 2])
    with pytest.raises(CommitUnknown):
        await db.run(lambda tr: tr.set(b"k", b"v"))


async def test_errors_of_reads(db: FoundationDatabase, fdb: StandIn) -> None:
    fdb.cluster.reads.append(1007)
    assert await db.run(lambda tr: tr.get(b"k")) is None
    fdb.cluster.reads.append(1009)
    assert await db.read(lambda tr: tr.get(b"k")) is None
    fdb.cluster.reads.append(1031)
    with pytest.raises(StoreAway, match="1031"):
        await db.run(lambda tr: tr.get(b"k"))
    fdb.cluster.reads.extend([1037] * 4)
    with pytest.raises(StoreAway, match="conflicts"):
        await db.read(lambda tr: tr.get(b"k"))
    assert await db.attempt(lambda tr: tr.get(b"k")) == Committed(None)


async def test_a_timeout_of_the_body_is_the_bodys(db: FoundationDatabase) -> None:
    def body(_: Transaction) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await db.run(body)


async def test_a_cluster_that_does_not_answer_in_time(db: FoundationDatabase, fdb: StandIn) -> None:
    fdb.cluster.commit_s = 1.5
    outcome = await db.attempt(lambda tr: tr.set(b"k", b"v"))
    assert isinstance(outcome, Unknown)
    fdb.cluster.commit_s = 0.0
    await until(lambda: b"k" in fdb.cluster.store.contents.values)


async def test_more_callers_than_threads(fdb: StandIn, file: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("ownership.foundationdb_store.THREADS_MAX", 2)
    db = await open_foundationdb(str(file), bindings=fdb, answer_s_max=0.3)
    gate, inside = threading.Event(), threading.Semaphore(0)

    def hold(_: Transaction) -> None:
        inside.release()
        gate.wait(10)

    held = [asyncio.create_task(db.attempt(hold)) for _ in range(2)]
    await until(lambda: inside.acquire(blocking=False))
    await until(lambda: inside.acquire(blocking=False))
    with pytest.raises(StoreAway, match="no thread"):
        await db.attempt(lambda tr: tr.set(b"never", b""))
    gate.set()
    await asyncio.gather(*held)
    await db.close()
    assert fdb.cluster.store.contents.values == {}


async def test_a_cancelled_commit_is_not_cancelled(db: FoundationDatabase, fdb: StandIn) -> None:
    fdb.cluster.commit_s = 0.1
    task = asyncio.create_task(db.run(lambda tr: tr.set(b"k", b"v")))
    await until(lambda: fdb.cluster.commit_calls == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await db.close()
    assert fdb.cluster.store.contents.values == {b"k": b"v"}


async def test_a_watch_that_fails_looks_again(db: FoundationDatabase, fdb: StandIn) -> None:
    fdb.cluster.arms.extend([1032, 1101])
    watch = db.watch(b"k")
    await until(lambda: not fdb.cluster.arms)
    await db.run(lambda tr: tr.add(b"k", 1))
    assert await watch.changed(10)
    fdb.cluster.reads.extend([1037, 1009])
    await db.run(lambda tr: tr.add(b"k", 1))
    assert await watch.changed(10)
    watch.close()


async def test_a_lost_watch_is_made_good_by_looking(db: FoundationDatabase, fdb: StandIn) -> None:
    watch = db.watch(b"k")
    await until(lambda: b"k" in fdb.cluster.watches)
    with fdb.cluster.lock:
        fdb.cluster.watches.clear()
        fdb.cluster.store.on_commit = None
    await db.run(lambda tr: tr.add(b"k", 1))
    assert await watch.changed(10)
    watch.close()


async def test_quiet_watches_are_cancelled_before_they_are_renewed(
    db: FoundationDatabase, fdb: StandIn
) -> None:
    watch = db.watch(b"k")
    await until(lambda: len(fdb.cluster.watches.get(b"k", [])) >= 4)
    armed = fdb.cluster.watches[b"k"]
    assert sum(not future.is_ready() for future in armed) <= 1
    watch.close()
    await until(lambda: all(future.is_ready() for future in fdb.cluster.watches[b"k"]))


def test_a_watch_that_fires_into_a_closed_loop(file: Path) -> None:
    bindings = StandIn()

    async def main() -> FoundationDatabase:
        db = await open_foundationdb(str(file), bindings=bindings)
        db.watch(b"k")
        await until(lambda: b"k" in bindings.cluster.watches)
        return db

    # The loop is closed with the watch still armed: the database was never closed.
    db = asyncio.run(main())
    (future,) = bindings.cluster.watches[b"k"]
    future.settle()
    bindings.cluster.stop()
    db._pool.shutdown()


async def test_nothing_is_left_after_closing(fdb: StandIn, file: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    db = await open_foundationdb(str(file), bindings=fdb)
    watch = db.watch(b"k")
    await asyncio.gather(*(db.run(lambda tr: tr.add(b"n", 1)) for _ in range(10)))
    await db.close()
    await db.close()
    assert {thread.name for thread in threading.enumerate()} == before
    assert await watch.changed(1) is False
    assert int64(fdb.cluster.store.contents.values[b"n"]) == 10
    with pytest.raises(StoreClosed):
        db.watch(b"k")


async def test_use_after_a_fork_is_refused(
    db: FoundationDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreClosed, match="fork"):
            await db.read(lambda tr: tr.get(b"k"))


async def test_a_cluster_that_is_not_there(fdb: StandIn, file: Path) -> None:
    fdb.cluster.reads.append(1031)
    with pytest.raises(StoreAway, match="did not answer within 10 s"):
        await open_foundationdb(str(file), bindings=fdb)
    assert not [t for t in threading.enumerate() if t.name.startswith("dhsched-fdb")]


async def test_a_client_that_cannot_be_opened(fdb: StandIn, file: Path, monkeypatch: Any) -> None:
    def refuse(cluster_file: str | None = None) -> None:
        raise FDBError(2104)

    monkeypatch.setattr(fdb, "open", refuse)
    with pytest.raises(StoreMisconfigured, match="2104"):
        await open_foundationdb(str(file), bindings=fdb)


# -- start-up -------------------------------------------------------------------------------------


def test_cluster_files(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster_file(str(file)) == file
    monkeypatch.setenv("FDB_CLUSTER_FILE", str(file))
    assert cluster_file("") == file
    with pytest.raises(StoreMisconfigured, match="there is no cluster file"):
        cluster_file(str(tmp_path / "absent"))
    with pytest.raises(StoreMisconfigured, match="cannot be read"):
        cluster_file(str(tmp_path))
    for text in ("", "nonsense", "a:b@host", "a:b@h:1\nc:d@h:2", "a:b@:1"):
        file.write_text(text)
        with pytest.raises(StoreMisconfigured, match="no cluster file"):
            cluster_file(str(file))
    for text in ("a:b@10.0.0.1:4500,10.0.0.2:4500", "a:b@[::1]:4500:tls\n", "x_1:Y2@host.name:1"):
        file.write_text(text)
        assert cluster_file(str(file)) == file


def test_a_cluster_file_that_may_not_be_rewritten(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for forbidden in (file, file.parent):
        monkeypatch.setattr(os, "access", lambda place, _, no=forbidden: place != no)
        with pytest.raises(StoreMisconfigured, match=f"{forbidden} may not be written"):
            cluster_file(str(file))


def fake_module(offered: int, latest: int, refuses: bool = False) -> types.ModuleType:
    fake: Any = types.ModuleType("fdb")
    impl: Any = types.ModuleType("fdb.impl")
    impl._capi = types.SimpleNamespace(fdb_get_max_api_version=lambda: offered)
    selected: list[int] = []

    def api_version(version: int) -> None:
        if refuses or offered < fake.LATEST_API_VERSION:
            raise RuntimeError("api_version_not_supported")
        selected.append(version)

    fake.LATEST_API_VERSION = latest
    fake.api_version = api_version
    fake.is_api_version_selected = lambda: bool(selected)
    fake.selected = selected
    fake.impl = impl
    return fake


def install(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    monkeypatch.setitem(sys.modules, "fdb", fake)
    monkeypatch.setitem(sys.modules, "fdb.impl", fake.impl)


@pytest.mark.parametrize(
    ("offered", "latest", "chosen"), [(730, 800, 730), (800, 800, 800), (900, 800, 800)]
)
def test_the_api_version_is_what_the_library_offers(
    monkeypatch: pytest.MonkeyPatch, offered: int, latest: int, chosen: int
) -> None:
    fake: Any = fake_module(offered, latest)
    install(monkeypatch, fake)
    assert load_bindings() is fake
    assert load_bindings() is fake
    assert fake.selected == [chosen]


def test_a_library_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_module(710, 800))
    with pytest.raises(StoreMisconfigured, match="offers API version 710"):
        load_bindings()
    install(monkeypatch, fake_module(800, 800, refuses=True))
    with pytest.raises(StoreMisconfigured, match="do not go together"):
        load_bindings()


def test_bindings_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fdb", None)
    with pytest.raises(StoreMisconfigured, match="pip install"):
        load_bindings()


async def test_the_client_library_that_is_not_on_this_machine(file: Path) -> None:
    """The official bindings themselves, without their library."""
    import ctypes

    try:
        ctypes.CDLL("libfdb_c.so")
    except OSError:
        pass
    else:
        pytest.skip("libfdb_c is installed here")
    with pytest.raises(StoreMisconfigured, match="LD_LIBRARY_PATH"):
        await open_database(f"fdb://{file}?prefix=test")


@pytest.mark.parametrize(
    "url", ["fdb://host/path", "fdb:///path?prefix=", "fdb:///path?colour=red"]
)
async def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(StoreMisconfigured):
        await open_database(url)
