"""The store contract: an ordered key-value database with strictly serializable transactions.

Everything that decides who owns a live goes through this page, so its promises stand here, above
the interface, and one conformance suite holds every backend to them.

**Keys and values** are bytes. Keys are ordered bytewise, unsigned. A key is 1 to `KEY_BYTES_MAX`
bytes long, a value 0 to `VALUE_BYTES_MAX`, and what one transaction writes (keys and values
together) at most `TRANSACTION_BYTES_MAX`. A body that asks for more gets `StoreLimit`: that is a
mistake in our code or an unchecked input, so it is never retried. The limits are those of the
strictest backend, and all backends refuse alike.

**A transaction is a plain function** of a `Transaction`, with no await in it. It sees one snapshot
of the database (taken at or after the call began, so every commit that was answered before the call
is in it) plus its own writes. It may run several times and on another thread, so apart from the
transaction it changes nothing, takes no lock, and mints no id, clock reading or random number:
these come in as arguments. It may remember what an earlier run of the same call saw. If it raises,
nothing is written and the exception reaches the caller as it is, with no retry.

**Order.** Committed transactions have one total order, which agrees with real time: if the answer
to A came before the call of B, then A is before B. A committed transaction behaves as if it ran
alone at its place in that order. This holds for its ordinary reads, points and ranges (a key that
appears in a range that was read is a conflict too). It does not hold for what it read through
`snapshot`: such reads come from the same snapshot but do not make the transaction conflict.
`add_read_conflict_key` makes a key count as read, `add_write_conflict_key` as written. `add` reads
nothing: two additions to one key never conflict, and both count.

**Outcomes** of one attempt:

- `Committed`: durable, as the backend is configured, and visible to every later call.
- `Conflict`: certainly not applied, and never will be.
- `Unknown`: applied, or not, or *applied later* (the commit was on its way when its answer was
  given up). `run` resolves it by running the body again. That is right exactly when the body
  is **self-conflicting**: it reads, not through `snapshot`, a key that it writes whenever it writes
  anything, and finds its own id there if an earlier attempt was applied. Then at most one of the
  attempts is ever applied: once the second commits, the first, if it is still under way, conflicts
  with it. Every protocol transaction is written so, with an id that its caller mints once per
  intent. Where a body cannot find its own id, `probe` may: it is run after an `Unknown`, before the
  body, and a value other than None is the answer.

**Errors** are one type per reaction: `StoreAway` (nothing was applied: try again later),
`CommitUnknown` (try again with the same ids, to learn), `StoreFull` and `StoreMisconfigured` (an
operator is needed), `StoreLimit` and `StoreClosed` (our mistake), `StoreCorrupt` (stop).

**Cancellation.** Cancelling the task that awaits `run` or `attempt` never cancels a commit: an
attempt that has begun ends as it would have, in the background, and no further attempt is made. A
cancelled caller therefore knows what it would know after `Unknown`, no more, and whoever repeats
the intent does it with the same id. `close` waits for attempts under way.

**Watches are hints.** A watch may fire without a change, and may miss a change that was undone, or
one made while the watch was being set up. So whoever watches also polls, more slowly.

**Who may call.** Any task of the event loop in which the database was opened; the object is not
shared with other threads or with child processes: open after spawn, never fork with it open.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

KEY_BYTES_MAX = 511
VALUE_BYTES_MAX = 100_000
TRANSACTION_BYTES_MAX = 10_000_000
INT64_MASK = (1 << 64) - 1

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KeyValue = tuple[bytes, bytes]


class Reads(Protocol):
    """Reads from one snapshot of the database."""

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`, None when it is absent."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys`, in their order; one round trip where the backend has any."""
        ...

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False
    ) -> list[KeyValue]:
        """Pairs with begin <= key < end in key order (or reversed), at most `limit` (0 = all)."""
        ...


class Transaction(Reads, Protocol):
    """What a body may do. Its reads see its own earlier writes."""

    @property
    def snapshot(self) -> Reads:
        """The same reads, without making this transaction conflict."""
        ...

    def set(self, key: bytes, value: bytes) -> None:
        """Write `value` under `key`."""
        ...

    def clear(self, key: bytes) -> None:
        """Remove `key`; nothing happens when it is absent."""
        ...

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Remove every key with begin <= key < end."""
        ...

    def add(self, key: bytes, delta: int) -> None:
        """Add to a little-endian 64-bit integer (absent = 0, wraps around), without reading it."""
        ...

    def add_read_conflict_key(self, key: bytes) -> None:
        """Conflict with whoever writes `key`, as if it had been read."""
        ...

    def add_write_conflict_key(self, key: bytes) -> None:
        """Make whoever reads `key` conflict with this transaction, as if it had been written."""
        ...


@dataclass(frozen=True, slots=True)
class Committed(Generic[T_co]):
    """The attempt is durable; `value` is what its body returned."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Conflict:
    """The attempt was not applied and never will be."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The attempt was applied, or was not, or will be applied later."""

    detail: str = ""


class StoreError(Exception):
    """The store could not do what it was asked."""


class StoreAway(StoreError):
    """The store cannot be reached, or did not get to it in time. Nothing was applied; retry."""


class CommitUnknown(StoreError):
    """The retries ended with an attempt that may have been, or may yet be, applied."""


class StoreFull(StoreError):
    """The disk or the map is full: an operator has to make room. Nothing was applied."""


class StoreMisconfigured(StoreError):
    """The store cannot be opened as it was asked for; the message says what to change."""


class StoreLimit(StoreError):
    """A key, a value or a transaction is too large: a mistake of the caller."""


class StoreClosed(StoreError):
    """The database was closed, or is used in a process that did not open it."""


class StoreCorrupt(StoreError):
    """The store holds what it never should: a broken invariant, not to be retried."""


class Watch(Protocol):
    """A hint that the value of one key changed. Close it when it is no longer needed."""

    async def changed(self, timeout_s: float) -> bool:
        """True when the value (perhaps) changed since the watch began or last said so.

        False when `timeout_s` passed first. One task at a time.
        """
        ...

    def close(self) -> None:
        """Stop watching; a waiting `changed` returns False. May be called twice."""
        ...


class Database(Protocol):
    """One open store. `async with` closes it."""

    async def attempt(self, body: Callable[[Transaction], T]) -> Committed[T] | Conflict | Unknown:
        """Run `body` once and commit. Never retries."""
        ...

    async def run(
        self,
        body: Callable[[Transaction], T],
        probe: Callable[[Reads], T | None] | None = None,
    ) -> T:
        """Run `body` until an attempt commits, with bounded back-off, and return its value.

        Raises StoreAway when only conflicts and failures came until the retries ended, and
        CommitUnknown when one of the attempts was Unknown.
        """
        ...

    async def read(self, body: Callable[[Reads], T]) -> T:
        """Run `body` on one snapshot that holds every commit answered before this call."""
        ...

    def watch(self, key: bytes) -> Watch:
        """Begin to watch `key`."""
        ...

    async def close(self) -> None:
        """Wait for attempts under way, then let go of files, threads and connections."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def check_key(key: bytes) -> None:
    """Refuse a key that some backend could not hold."""
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise StoreLimit(f"a key has {len(key)} bytes, allowed are 1 to {KEY_BYTES_MAX}")


def check_value(value: bytes) -> None:
    """Refuse a value that some backend could not hold."""
    if len(value) > VALUE_BYTES_MAX:
        raise StoreLimit(f"a value has {len(value)} bytes, allowed are {VALUE_BYTES_MAX}")


def add_int64(old: bytes | None, delta: int) -> bytes:
    """What `Transaction.add` leaves under a key that held `old`."""
    base = 0 if old is None else int.from_bytes(old[:8], "little")
    return ((base + delta) & INT64_MASK).to_bytes(8, "little")


def int64(value: bytes | None) -> int:
    """Read back a counter that `Transaction.add` wrote, signed; 0 when it is absent."""
    return 0 if value is None else int.from_bytes(value[:8], "little", signed=True)
