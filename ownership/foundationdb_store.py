"""The store on a FoundationDB cluster, through the official bindings.

Their own asyncio support does not work on today's Python, so a whole transaction is one hop to a
worker thread: the body, its reads (pipelined) and its commit. Watches need no thread while they
wait: the client's callback wakes the event loop.

The client retries nothing here: `run` does, with our bounds. Every transaction has a time limit,
set on the database. A commit whose answer did not come in time is Unknown, and may come later.
"""

import asyncio
import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ownership.closing import ClosesAtEnd
from ownership.foundationdb_start import cluster_file, load_bindings
from ownership.foundationdb_transaction import (
    Bindings,
    FdbReads,
    FdbTransaction,
    at_commit,
    before_commit,
)
from ownership.kv import (
    Committed,
    Conflict,
    Reads,
    StoreAway,
    StoreClosed,
    StoreError,
    StoreMisconfigured,
    Transaction,
    Unknown,
)
from ownership.retry import Retry, run_attempts
from ownership.tuple_layer import pack
from ownership.watching import HintWatch

T = TypeVar("T")

PREFIX = "dhsched"
# The cluster itself ends a transaction after five seconds.
TRANSACTION_MS_MAX = 5000
START_S_MAX = 10.0
# How long a call waits for its thread and its transaction together.
ANSWER_S_MAX = 8.0
# One thread per transaction under way; more than this wait for their turn.
THREADS_MAX = 64
# A watch may be lost (an error, a change undone): its key is looked at again after this long.
WATCH_POLL_S = 2.0

_Answer = Committed[Any] | Conflict | Unknown


class FoundationDatabase(ClosesAtEnd):
    """One client of a cluster, under one prefix. See `ownership.kv.Database`."""

    def __init__(
        self,
        bindings: Bindings,
        handle: Any,
        prefix: bytes,
        rng: random.Random,
        retry: Retry,
        answer_s_max: float = ANSWER_S_MAX,
        watch_poll_s: float = WATCH_POLL_S,
    ) -> None:
        self._bindings = bindings
        self._handle = handle
        self._prefix = prefix
        self._rng = rng
        self._retry = retry
        self._answer_s_max = answer_s_max
        self._watch_poll_s = watch_poll_s
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="dhsched-fdb")
        self._closed = False
        self._under_way: set[asyncio.Future[Any]] = set()
        self._followers: dict[HintWatch, asyncio.Task[None]] = {}

    async def attempt(self, body: Callable[[Transaction], T]) -> Committed[T] | Conflict | Unknown:
        """See `ownership.kv.Database.attempt`."""
        return await self._in_thread(self._transact, body)

    async def run(
        self,
        body: Callable[[Transaction], T],
        probe: Callable[[Reads], T | None] | None = None,
    ) -> T:
        """See `ownership.kv.Database.run`."""
        return await run_attempts(self, body, probe, self._retry, self._rng)

    async def read(self, body: Callable[[Reads], T]) -> T:
        """See `ownership.kv.Database.read`."""
        return await run_attempts(_ReadOnly(self), body, None, self._retry, self._rng)

    async def attempt_read(self, body: Callable[[Reads], T]) -> Committed[T] | Conflict | Unknown:
        """One attempt of `read`, for its retries."""
        return await self._in_thread(self._look, body)

    def watch(self, key: bytes) -> HintWatch:
        """See `ownership.kv.Database.watch`."""
        self._check_open()
        watch = HintWatch(key, self._unwatch)
        self._followers[watch] = asyncio.get_running_loop().create_task(self._follow(watch))
        return watch

    async def close(self) -> None:
        """See `ownership.kv.Database.close`. The client's network thread goes on: it serves all."""
        if self._closed:
            return
        self._closed = True
        followers = list(self._followers.values())
        for watch in list(self._followers):
            watch.close()
        await asyncio.gather(*followers, return_exceptions=True)
        if self._under_way:
            await asyncio.wait(self._under_way)
        # Nothing runs in them any more, so this takes no time.
        self._pool.shutdown()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the database is closed")
        if self._pid != os.getpid():
            raise StoreClosed("the database was opened before a fork: open it in this process")

    # -- the hop ----------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[Any], _Answer], body: Callable[[Any], T]) -> _Answer:
        self._check_open()
        begun = self._pool.submit(work, body)
        told = self._remember(asyncio.wrap_future(begun))
        try:
            # Shielded: a commit that has begun goes on when its caller is cancelled.
            return await asyncio.wait_for(asyncio.shield(told), self._answer_s_max)
        except TimeoutError:
            if told.done():
                return told.result()
            if begun.cancel():
                raise StoreAway(
                    f"no thread was free for a transaction within {self._answer_s_max:g} s"
                ) from None
            return Unknown(f"no answer within {self._answer_s_max:g} s")

    def _remember(self, told: "asyncio.Future[T]") -> "asyncio.Future[T]":
        """`close` waits for it."""
        self._under_way.add(told)
        told.add_done_callback(self._forget)
        return told

    def _forget(self, told: "asyncio.Future[Any]") -> None:
        self._under_way.discard(told)
        if not told.cancelled():
            told.exception()

    # -- in the worker thread ---------------------------------------------------------------

    def _transact(self, body: Callable[[Transaction], T]) -> Committed[T] | Conflict | Unknown:
        tr = self._handle.create_transaction()
        ours = FdbTransaction(self._bindings, tr, self._prefix)
        try:
            value = body(ours)
        except self._bindings.FDBError as error:
            return _raise_or_return(before_commit(self._bindings, error), error)
        if not ours.wrote:
            return Committed(value)
        try:
            tr.commit().wait()
        except self._bindings.FDBError as error:
            return _raise_or_return(at_commit(self._bindings, error), error)
        return Committed(value)

    def _look(self, body: Callable[[Reads], T]) -> Committed[T] | Conflict | Unknown:
        tr = self._handle.create_transaction()
        try:
            # Nothing is written, so nothing can conflict, and no conflict ranges are kept.
            return Committed(body(FdbReads(self._bindings, tr.snapshot, self._prefix)))
        except self._bindings.FDBError as error:
            return _raise_or_return(before_commit(self._bindings, error), error)

    def _arm(self, key: bytes) -> tuple[bytes | None, Any]:
        """The value of the key, and the client's future that is ready when it changes."""
        tr = self._handle.create_transaction()
        value: bytes | None = tr.snapshot.get(self._prefix + key).value
        future = tr.watch(self._prefix + key)
        tr.commit().wait()
        return value, future

    # -- watches ----------------------------------------------------------------------------

    async def _follow(self, watch: HintWatch) -> None:
        """Arm, wait for the client's word or for the time to look anyway, compare, again."""
        known: bytes | None = None
        looked = False
        while True:
            try:
                armed = asyncio.wrap_future(self._pool.submit(self._arm, watch.key))
                value, future = await asyncio.shield(self._remember(armed))
            except self._bindings.FDBError:
                # A hint that is not given. The next look may work.
                await asyncio.sleep(self._watch_poll_s)
                continue
            if looked and value != known:
                watch.fire()
            known, looked = value, True
            await self._until_ready(watch, future)

    async def _until_ready(self, watch: HintWatch, future: Any) -> None:
        ready = asyncio.Event()
        loop = watch.loop

        def wake(_: object) -> None:
            # On the network thread, or inline when the future was ready: it must not wait for
            # anything. The loop may have been closed meanwhile, and then nobody waits.
            try:
                loop.call_soon_threadsafe(ready.set)
            except RuntimeError:
                return

        future.on_ready(wake)
        try:
            await asyncio.wait_for(ready.wait(), self._watch_poll_s)
            future.wait()
        except TimeoutError:
            # The next look arms a new one.
            return
        except self._bindings.FDBError:
            # Lost, or one of too many: looking again at once would spin.
            await asyncio.sleep(self._watch_poll_s)
        finally:
            if not future.is_ready():
                future.cancel()

    def _unwatch(self, watch: HintWatch) -> None:
        follower = self._followers.pop(watch, None)
        if follower is not None:
            follower.cancel()


class _ReadOnly:
    """Lets `run_attempts` repeat reads."""

    def __init__(self, db: FoundationDatabase) -> None:
        self._db = db

    async def attempt(self, body: Callable[[Transaction], T]) -> Committed[T] | Conflict | Unknown:
        reading: Callable[[Any], T] = body
        outcome = await self._db.attempt_read(reading)
        if isinstance(outcome, Unknown):
            # A read that is late was not applied to anything.
            raise StoreAway(outcome.detail)
        return outcome

    async def read(self, body: Callable[[Reads], T]) -> T:
        return await self._db.read(body)


def _raise_or_return(
    meaning: Conflict | Unknown | StoreError, error: Exception
) -> Conflict | Unknown:
    if isinstance(meaning, StoreError):
        raise meaning from error
    return meaning


async def open_foundationdb(
    path: str,
    *,
    prefix: str = PREFIX,
    rng: random.Random | None = None,
    retry: Retry | None = None,
    bindings: Bindings | None = None,
    start_s_max: float = START_S_MAX,
    answer_s_max: float = ANSWER_S_MAX,
    watch_poll_s: float = WATCH_POLL_S,
) -> FoundationDatabase:
    """Open the cluster of a cluster file ("" = FDB_CLUSTER_FILE, or the system's).

    Raises StoreMisconfigured with what to change, and StoreAway when the cluster does not answer
    within `start_s_max`. `bindings` is for tests.
    """
    fdb = load_bindings() if bindings is None else bindings
    file = cluster_file(path)
    try:
        handle = fdb.open(str(file))
        handle.options.set_transaction_timeout(TRANSACTION_MS_MAX)
        handle.options.set_transaction_retry_limit(0)
        handle.options.set_transaction_max_retry_delay(1000)
    except fdb.FDBError as error:
        raise StoreMisconfigured(f"FoundationDB cannot be opened with {file}: {error}") from error
    db = FoundationDatabase(
        fdb,
        handle,
        pack((prefix,)),
        random.Random() if rng is None else rng,
        Retry() if retry is None else retry,
        answer_s_max,
        watch_poll_s,
    )
    try:
        await asyncio.wait_for(db.read(lambda tr: tr.get(b"\x00")), start_s_max)
    except (StoreAway, TimeoutError) as error:
        await db.close()
        raise StoreAway(
            f"the FoundationDB cluster of {file} did not answer within {start_s_max:g} s: is it "
            f"running, is it available, and can its addresses be reached from here? ({error})"
        ) from error
    except BaseException:
        await db.close()
        raise
    return db
