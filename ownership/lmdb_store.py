"""The store on one machine: LMDB, several processes, durable. The default without a cluster.

A body runs inside LMDB's one write transaction, so it never conflicts, and its reads are of the
newest state. Reads without writes use read transactions, in the caller's thread: they touch mapped
memory, take about a microsecond and block nobody.

A write waits for the lock that all processes share. A process that is stopped while it holds the
lock stops the others; they get `StoreAway` after `answer_s_max`, and the lock is free again when
that process goes on or dies. Local disks only: the lock and the map do not work over a network.
"""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from ownership.closing import ClosesAtEnd
from ownership.kv import (
    Committed,
    Conflict,
    Reads,
    StoreAway,
    StoreClosed,
    StoreMisconfigured,
    Transaction,
    Unknown,
)
from ownership.lmdb_transaction import LmdbReads
from ownership.lmdb_writer import Job, Writer
from ownership.retry import Retry, run_attempts
from ownership.watching import HintWatch

T = TypeVar("T")

# One fixed map for the life of the store: growing it while others have it open corrupts (LMDB
# issues), and an unused map costs address space only.
MAP_GIB = 16
READERS_MAX = 512
ANSWER_S_MAX = 5.0
_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "ceph"})


class LmdbDatabase(ClosesAtEnd):
    """One user of a process's environment. See `ownership.kv.Database`."""

    def __init__(
        self, shared: "_Shared", rng: random.Random, retry: Retry, answer_s_max: float
    ) -> None:
        self._shared = shared
        self._writer = shared.writer
        self._pid = os.getpid()
        self._rng = rng
        self._retry = retry
        self._answer_s_max = answer_s_max
        self._closed = False
        self._under_way: set[asyncio.Future[Committed[Any] | Unknown]] = set()
        self._watches: set[HintWatch] = set()

    async def attempt(self, body: Callable[[Transaction], T]) -> Committed[T] | Conflict | Unknown:
        """See `ownership.kv.Database.attempt`. Never a Conflict here."""
        self._check_open()
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Committed[T] | Unknown] = loop.create_future()
        job = Job(body, told)
        timer = loop.call_later(self._answer_s_max, self._give_up, job)
        self._under_way.add(told)
        self._writer.submit(job)
        try:
            # Shielded: the job goes on when its caller is cancelled, and `close` waits for it.
            return await asyncio.shield(told)
        finally:
            if told.done():
                timer.cancel()
                self._under_way.discard(told)
            else:
                told.add_done_callback(self._forget_told)

    async def run(
        self,
        body: Callable[[Transaction], T],
        probe: Callable[[Reads], T | None] | None = None,
    ) -> T:
        """See `ownership.kv.Database.run`."""
        return await run_attempts(self, body, probe, self._retry, self._rng)

    async def read(self, body: Callable[[Reads], T]) -> T:
        """See `ownership.kv.Database.read`."""
        self._check_open()
        # The loop gets its turn, as with every other backend.
        await asyncio.sleep(0)
        self._check_open()
        env = self._writer.env
        try:
            txn = env.begin()
        except lmdb.ReadersFullError:
            env.reader_check()
            try:
                txn = env.begin()
            except lmdb.ReadersFullError as error:
                raise StoreAway(f"LMDB has no reader slot free of {READERS_MAX}") from error
        try:
            return body(LmdbReads(txn))
        except lmdb.Error as error:
            raise StoreAway(f"LMDB: {error}") from error
        finally:
            txn.abort()

    def watch(self, key: bytes) -> HintWatch:
        """See `ownership.kv.Database.watch`."""
        self._check_open()
        watch = HintWatch(key, self._unwatch)
        self._watches.add(watch)
        self._writer.watch(watch)
        return watch

    async def close(self) -> None:
        """See `ownership.kv.Database.close`."""
        if self._closed:
            return
        self._closed = True
        for watch in list(self._watches):
            watch.close()
        if self._under_way:
            await asyncio.wait(self._under_way)
        if self._pid == os.getpid():
            await self._shared.release()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the database is closed")
        if self._pid != os.getpid():
            raise StoreClosed("the database was opened before a fork: open it in this process")

    def _give_up(self, job: Job) -> None:
        """The time is over: a certain answer if the body has not begun, else an unknown one."""
        if job.told.done():
            return
        if self._writer.give_up(job):
            job.told.set_exception(
                StoreAway(
                    f"LMDB's write lock was not free for {self._answer_s_max:g} s: "
                    "a process holds it, stopped or very busy"
                )
            )
        else:
            job.told.set_result(Unknown(f"no answer within {self._answer_s_max:g} s"))

    def _forget_told(self, told: "asyncio.Future[Committed[Any] | Unknown]") -> None:
        self._under_way.discard(told)
        if not told.cancelled():
            told.exception()

    def _unwatch(self, watch: HintWatch) -> None:
        self._watches.discard(watch)
        self._writer.unwatch(watch)


class _Shared:
    """The environment of one path in this process: LMDB allows only one."""

    def __init__(self, place: tuple[int, str], writer: Writer, sync: bool) -> None:
        self.place = place
        self.writer = writer
        self.sync = sync
        self.users = 0

    async def release(self) -> None:
        self.users -= 1
        if self.users:
            return
        _open_here.pop(self.place, None)
        thread = self.writer.stop()
        # Its queue is empty: it ends at once, unless another process holds the write lock.
        await asyncio.to_thread(thread.join, ANSWER_S_MAX)


_open_here: dict[tuple[int, str], _Shared] = {}


def open_lmdb(
    path: Path,
    *,
    sync: bool = True,
    map_gib: float = MAP_GIB,
    rng: random.Random | None = None,
    retry: Retry | None = None,
    answer_s_max: float = ANSWER_S_MAX,
) -> LmdbDatabase:
    """Open, or create, the store in the directory `path`. Raises StoreMisconfigured.

    `sync` False does not flush commits to the disk: they survive this process, not the machine.
    """
    real = os.path.realpath(path)
    # What a fork inherited is the parent's: closing it here would drop the parent's locks.
    place = (os.getpid(), real)
    shared = _open_here.get(place)
    if shared is None:
        shared = _Shared(place, Writer(_environment(real, sync, map_gib), "dhsched-lmdb"), sync)
        shared.writer.start()
        _open_here[place] = shared
    elif shared.sync != sync:
        raise StoreMisconfigured(f"{real} is open in this process with another sync setting")
    shared.users += 1
    return LmdbDatabase(
        shared,
        random.Random() if rng is None else rng,
        Retry() if retry is None else retry,
        answer_s_max,
    )


def _environment(path: str, sync: bool, map_gib: float) -> lmdb.Environment:
    kind = _file_system(path)
    if kind in _NETWORK_FILE_SYSTEMS:
        raise StoreMisconfigured(f"{path} is on {kind}: LMDB needs a local disk")
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        env = lmdb.open(
            path,
            map_size=int(map_gib * (1 << 30)),
            sync=sync,
            metasync=sync,
            max_readers=READERS_MAX,
            max_spare_txns=4,
        )
        # Slots of readers that were killed keep old pages from being used again.
        env.reader_check()
    except (FileExistsError, NotADirectoryError) as error:
        raise StoreMisconfigured(f"{path} is not a directory") from error
    except PermissionError as error:
        raise StoreMisconfigured(f"{path} may not be written: {error.strerror}") from error
    except (OSError, lmdb.Error, MemoryError) as error:
        raise StoreMisconfigured(f"the LMDB store {path} cannot be opened: {error}") from error
    return env


def _file_system(path: str) -> str:
    """The type of the file system that holds `path`, "" where it cannot be told."""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in mounts:
        fields = line.split(" ")
        point = fields[1].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
