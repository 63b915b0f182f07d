"""What concerns one worker, on one snapshot: what it owns and has left, and what is kept for moves.

A worker asks at every signal, so only what is there is looked at: the tallies of all workers say
where a slot is leaving or reserved, and mostly none is.
"""

from dataclasses import dataclass

from ownership import keys
from ownership.generations import leaving, owned
from ownership.kv import Database, Reads, int64
from ownership.model import Generation, Reservation
from ownership.reservations import reserved
from ownership.rules import tally_counts
from ownership.tuple_layer import prefix_range


@dataclass(frozen=True, slots=True)
class Standing:
    """One worker's; all of it as it was at the same place of the commit order."""

    owned: list[tuple[str, Generation]]
    """The lives whose committed generation names it, in order of their ids."""
    leaving: list[tuple[str, Generation]]
    """The ended generations whose runtimes it has not yet confirmed gone."""
    reserved: list[Reservation]
    """Its own slots that are kept for moves."""
    elsewhere: list[tuple[str, Reservation]]
    """The slots that are kept at other workers, with the worker; for lives of whoever owns them."""


async def standing(db: Database, worker_id: str) -> Standing:
    """See `Standing`."""

    def body(tr: Reads) -> Standing:
        left: list[tuple[str, Generation]] = []
        kept: list[Reservation] = []
        elsewhere: list[tuple[str, Reservation]] = []
        for key, raw in tr.get_range(*prefix_range(keys.TALLY)):
            _, leaving_count, reserved_count = tally_counts(int64(raw))
            if leaving_count == reserved_count == 0:
                continue
            name = keys.last_text(key)
            if name != worker_id:
                elsewhere += [(name, one) for one in reserved(tr, name)] if reserved_count else []
                continue
            left = leaving(tr, name) if leaving_count else []
            kept = reserved(tr, name) if reserved_count else []
        return Standing(owned(tr, worker_id), left, kept, elsewhere)

    return await db.read(body)
