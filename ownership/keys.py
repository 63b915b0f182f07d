"""Where each thing lies in the store: the key spaces of the protocol, as packed tuples.

Each space is a tuple that begins with its name; its packed name is made once, here. A backend may
put everything under a prefix of its own (`fdb://...?prefix=`), which keys never contain.

    live/<id>                 options, open or closed         gen/<id>       owner, epoch, slot
    claim/<id>                accepted generation             cursor/<id>    next offset to release
    progress/<id>             checkpoint                      orphan/<id>    waits for capacity
    by_worker/<wid>/<id>      epoch owned (int64)             by_partition/<p>/<id>  open lives
    worker/<wid>              incarnation and its state       node/<node>    its current incarnation
    beat/<wid>                counter                         load/<wid>     load view (a hint)
    slot/<wid>/<i>            who has slot i (absent: free)   tally/<wid>    counts of those slots
    taken/<wid>/<n>           a bit for each of 64 slots: set where it is not free (a hint)
    reservation/<wid>/<token> (slot, live_id)                 signal/<wid>   counter to watch
    tomb/<wid>                buried incarnation, refused     idem/<key>     idempotency of creation
    watermark/<p>             finished below (int64)          disposing/<p>/<offset>  live_id
    meta                      the text topic's shape

PURE.
"""

from functools import lru_cache
from hashlib import sha256

from ownership.tuple_layer import pack, pack_int, pack_text, unpack

IDEMPOTENCY_KEY_BYTES_MAX = 200


def _space(name: str) -> bytes:
    return pack((name,))


LIVE = _space("live")
GEN = _space("gen")
CLAIM = _space("claim")
CURSOR = _space("cursor")
PROGRESS = _space("progress")
ORPHAN = _space("orphan")
BY_WORKER = _space("by_worker")
BY_PARTITION = _space("by_partition")
WORKER = _space("worker")
NODE = _space("node")
BEAT = _space("beat")
LOAD = _space("load")
SLOT = _space("slot")
TALLY = _space("tally")
TAKEN = _space("taken")
RESERVATION = _space("reservation")
SIGNAL = _space("signal")
TOMB = _space("tomb")
IDEM = _space("idem")
WATERMARK = _space("watermark")
DISPOSING = _space("disposing")
META = _space("meta")


def live(live_id: str) -> bytes:
    return LIVE + pack_text(live_id)


def gen(live_id: str) -> bytes:
    return GEN + pack_text(live_id)


def claim(live_id: str) -> bytes:
    return CLAIM + pack_text(live_id)


def cursor(live_id: str) -> bytes:
    return CURSOR + pack_text(live_id)


def progress(live_id: str) -> bytes:
    return PROGRESS + pack_text(live_id)


@lru_cache(maxsize=8192)
def of_release(live_id: str) -> tuple[bytes, bytes, bytes]:
    """`gen`, `cursor` and `progress` of a live, which is released again and again."""
    packed = pack_text(live_id)
    return GEN + packed, CURSOR + packed, PROGRESS + packed


def orphan(live_id: str) -> bytes:
    return ORPHAN + pack_text(live_id)


def by_worker_of(worker_id: str) -> bytes:
    """The prefix of a worker's lives."""
    return BY_WORKER + pack_text(worker_id)


def by_worker(worker_id: str, live_id: str) -> bytes:
    return BY_WORKER + pack_text(worker_id) + pack_text(live_id)


def by_partition_of(partition: int) -> bytes:
    """The prefix of a partition's open lives."""
    return BY_PARTITION + pack_int(partition)


def by_partition(partition: int, live_id: str) -> bytes:
    return BY_PARTITION + pack_int(partition) + pack_text(live_id)


def worker(worker_id: str) -> bytes:
    return WORKER + pack_text(worker_id)


def node(name: str) -> bytes:
    return NODE + pack_text(name)


def beat(worker_id: str) -> bytes:
    return BEAT + pack_text(worker_id)


def load(worker_id: str) -> bytes:
    return LOAD + pack_text(worker_id)


def slots_of(worker_id: str) -> bytes:
    """The prefix of a worker's slots."""
    return SLOT + pack_text(worker_id)


def slot(worker_id: str, index: int) -> bytes:
    return SLOT + pack_text(worker_id) + pack_int(index)


def tally(worker_id: str) -> bytes:
    return TALLY + pack_text(worker_id)


def taken_of(worker_id: str) -> bytes:
    """The prefix of the words in which a worker's slots are marked."""
    return TAKEN + pack_text(worker_id)


def taken(worker_id: str, word: int) -> bytes:
    return TAKEN + pack_text(worker_id) + pack_int(word)


def reservations_of(worker_id: str) -> bytes:
    """The prefix of a worker's reservations."""
    return RESERVATION + pack_text(worker_id)


def reservation(worker_id: str, token: str) -> bytes:
    return RESERVATION + pack_text(worker_id) + pack_text(token)


def signal(worker_id: str) -> bytes:
    return SIGNAL + pack_text(worker_id)


def tomb(worker_id: str) -> bytes:
    return TOMB + pack_text(worker_id)


def idem(key: str) -> bytes:
    """An idempotency key of any length: a long one lies under its digest, as bytes, not as text."""
    raw = key.encode()
    if len(raw) <= IDEMPOTENCY_KEY_BYTES_MAX:
        return IDEM + pack_text(key)
    return IDEM + pack((sha256(raw).digest(),))


def watermark(partition: int) -> bytes:
    return WATERMARK + pack_int(partition)


def disposing_of(partition: int) -> bytes:
    """The prefix of a partition's unfinished disposals."""
    return DISPOSING + pack_int(partition)


def disposing(partition: int, offset: int) -> bytes:
    return DISPOSING + pack_int(partition) + pack_int(offset)


def last_text(key: bytes) -> str:
    """The last element of a key that ends with an id."""
    element = unpack(key)[-1]
    if not isinstance(element, str):
        raise TypeError(f"the key {key!r} does not end with text")
    return element


def last_int(key: bytes) -> int:
    """The last element of a key that ends with a number."""
    element = unpack(key)[-1]
    if not isinstance(element, int):
        raise TypeError(f"the key {key!r} does not end with a number")
    return element
