"""When a live was last used and watched: stamps that any replica writes and the sweep reads.

A stamp is gathered in memory and written once a second for all lives together, so that a token
stream does not cost a store commit per token. A stamp only grows; two replicas that saw the same
thing write the same. Stamps are wall time, compared over minutes; a machine whose clock is wrong by
less than the timeouts does no harm.

Keys: `used/<id>` int64 Unix ms; `watched/<id>` two int64, Unix ms of the last change and how many
viewers there were then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from ownership import keys
from ownership.kv import Database, Reads, Transaction
from ownership.tuple_layer import pack, pack_text
from schemas.store_values import LiveState, LiveStatus

_USED = pack(("used",))
_WATCHED = pack(("watched",))
FLUSH_LIVES_MAX = 500
"""Lives per transaction."""


@dataclass(frozen=True, slots=True)
class Watched:
    """How many viewers a live had at its last change."""

    at_ms: int
    viewers: int

    def encode(self) -> bytes:
        return _int64(self.at_ms) + _int64(self.viewers)

    @classmethod
    def decode(cls, raw: bytes) -> "Watched":
        return cls(_from_int64(raw[:8]), _from_int64(raw[8:16]))


@dataclass(frozen=True, slots=True)
class Stamps:
    """0 and None: nothing is known beyond the live's creation."""

    used_at_ms: int = 0
    watched: Watched | None = None


class ActivityBook:
    """Stamps not written yet. `flush` is called by one loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._used: dict[str, int] = {}
        self._watched: dict[str, Watched] = {}

    def use(self, live_id: str, wall_ms: int) -> None:
        """Text, an interrupt, a keepalive or a new viewer came."""
        self._used[live_id] = max(wall_ms, self._used.get(live_id, 0))

    def watch(self, live_id: str, viewers: int, at_ms: int) -> None:
        """The owner reported how many viewers there are."""
        known = self._watched.get(live_id)
        if known is None or at_ms >= known.at_ms:
            self._watched[live_id] = Watched(at_ms, viewers)

    async def flush(self) -> None:
        """Writes what was gathered. Raises StoreError; what was not written is kept."""
        while self._used or self._watched:
            used = dict(islice(self._used.items(), FLUSH_LIVES_MAX))
            watched = dict(islice(self._watched.items(), FLUSH_LIVES_MAX))

            def body(
                tr: Transaction,
                used: Mapping[str, int] = used,
                watched: Mapping[str, Watched] = watched,
            ) -> None:
                _write(tr, used, watched)

            await self._db.run(body)
            for live_id, at_ms in used.items():
                if self._used.get(live_id) == at_ms:
                    del self._used[live_id]
            for live_id, seen in watched.items():
                if self._watched.get(live_id) == seen:
                    del self._watched[live_id]


def _write(tr: Transaction, used: Mapping[str, int], watched: Mapping[str, Watched]) -> None:
    """Repeating it changes nothing, so an unknown outcome needs no id."""
    ids = sorted({*used, *watched})
    lives = tr.get_many([keys.live(live_id) for live_id in ids])
    is_open = {
        live_id: raw is not None and LiveState.decode(raw).state is LiveStatus.OPEN
        for live_id, raw in zip(ids, lives, strict=True)
    }
    for live_id, at_ms in used.items():
        old = tr.get(_used_key(live_id))
        if is_open[live_id] and (old is None or _from_int64(old) < at_ms):
            tr.set(_used_key(live_id), _int64(at_ms))
    for live_id, seen in watched.items():
        old = tr.get(_watched_key(live_id))
        if is_open[live_id] and (old is None or Watched.decode(old).at_ms < seen.at_ms):
            tr.set(_watched_key(live_id), seen.encode())


async def stamp_use(db: Database, live_id: str, wall_ms: int) -> None:
    """Writes one stamp at once, for whoever answers that it is stored. Raises StoreError."""
    await db.run(lambda tr: _write(tr, {live_id: wall_ms}, {}))


def read_stamps(tr: Reads, live_id: str) -> Stamps:
    """Within a transaction body."""
    used, watched = tr.get_many([_used_key(live_id), _watched_key(live_id)])
    return Stamps(
        used_at_ms=_from_int64(used) if used is not None else 0,
        watched=Watched.decode(watched) if watched is not None else None,
    )


async def forget_stamps(db: Database, live_id: str) -> None:
    """Of a live that is closed. Raises StoreError."""

    def body(tr: Transaction) -> None:
        raw = tr.get(keys.live(live_id))
        if raw is not None and LiveState.decode(raw).state is LiveStatus.OPEN:
            return  # created again meanwhile
        tr.clear(_used_key(live_id))
        tr.clear(_watched_key(live_id))

    await db.run(body)


def _used_key(live_id: str) -> bytes:
    return _USED + pack_text(live_id)


def _watched_key(live_id: str) -> bytes:
    return _WATCHED + pack_text(live_id)


def _int64(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def _from_int64(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)
