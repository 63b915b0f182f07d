"""Worker incarnations: register, beat, drain, be marked dead, be buried.

An incarnation is a process; its id is new at every start and is never used again. So whatever an
incarnation held ends with it: once it is marked dead its slots count no more, and it can neither
beat, nor register, nor be admitted anything. It may still run for a while; its releases are refused
by the generations that have moved on, and it learns of its death from its next beat.
"""

from dataclasses import replace

from ownership import keys
from ownership.kv import Database, Reads, Transaction, int64
from ownership.model import (
    AlreadyDead,
    BeatMoved,
    BeatOk,
    Buried,
    MarkedDead,
    NotDead,
    Registered,
    StateSet,
    StillHolds,
    UnknownWorker,
    WorkerDead,
    WorkerView,
)
from ownership.rules import (
    CAPACITY_MAX,
    alive,
    mark_dead_refusal,
    register_refusal,
    tally_counts,
)
from ownership.tuple_layer import prefix_range
from ownership.values import read_load, read_worker
from schemas.store_values import LoadView, WorkerState, WorkerValue


async def register_worker(db: Database, value: WorkerValue) -> Registered | WorkerDead:
    """Let an incarnation in, and mark its node's earlier one dead in the same transaction.

    Repeated for an incarnation that is in, it changes nothing. Raises ValueError for a capacity out
    of range.
    """
    if not 0 < value.capacity <= CAPACITY_MAX:
        raise ValueError(f"the capacity {value.capacity} is not from 1 to {CAPACITY_MAX}")
    superseded: str | None = None

    def body(tr: Transaction) -> Registered | WorkerDead:
        nonlocal superseded
        raw, tomb, node = tr.get_many(
            [keys.worker(value.worker_id), keys.tomb(value.worker_id), keys.node(value.node)]
        )
        known = read_worker(raw)
        refusal = register_refusal(value.worker_id, known, tomb is not None)
        if refusal is not None:
            return refusal
        if known is not None:
            return Registered(superseded)
        # Remembered over attempts, so that a repeat after an unknown outcome can still tell.
        superseded = None if node is None else node.decode()
        if superseded is not None:
            _kill(tr, superseded)
        tr.set(keys.worker(value.worker_id), value.encode())
        tr.set(keys.node(value.node), value.worker_id.encode())
        tr.add(keys.beat(value.worker_id), 1)
        tr.add(keys.signal(value.worker_id), 1)
        return Registered(superseded)

    return await db.run(body)


def _kill(tr: Transaction, worker_id: str) -> None:
    earlier = read_worker(tr.get(keys.worker(worker_id)))
    if earlier is not None and alive(earlier):
        tr.set(keys.worker(worker_id), replace(earlier, state=WorkerState.DEAD).encode())
        tr.add(keys.signal(worker_id), 1)


async def beat(db: Database, worker_id: str, load: LoadView) -> BeatOk | WorkerDead:
    """Count one sign of life and publish the load view. Refused once marked dead.

    After an unknown outcome it may count twice, which is one more sign of life.
    """
    encoded = load.encode()

    def body(tr: Transaction) -> BeatOk | WorkerDead:
        worker = read_worker(tr.get(keys.worker(worker_id)))
        if worker is None or not alive(worker):
            return WorkerDead(worker_id)
        tr.add(keys.beat(worker_id), 1)
        tr.set(keys.load(worker_id), encoded)
        return BeatOk(worker.state is WorkerState.DRAINING)

    return await db.run(body)


async def mark_dead(
    db: Database, worker_id: str, beat_seen: int
) -> MarkedDead | BeatMoved | AlreadyDead | UnknownWorker:
    """Declare a worker dead whose counter still stands at `beat_seen`.

    The counter is read for conflict: a beat that commits first makes this one start again and see
    it, and a beat that comes second finds the worker dead.
    """

    def body(tr: Transaction) -> MarkedDead | BeatMoved | AlreadyDead | UnknownWorker:
        raw, counter = tr.get_many([keys.worker(worker_id), keys.beat(worker_id)])
        worker = read_worker(raw)
        refusal = mark_dead_refusal(worker_id, worker, int64(counter), beat_seen)
        if refusal is not None:
            return refusal
        _kill(tr, worker_id)
        return MarkedDead(worker_id)

    return await db.run(body)


async def set_draining(
    db: Database, worker_id: str, *, draining: bool = True
) -> StateSet | AlreadyDead | UnknownWorker:
    """Admit nothing more to a worker (or admit again)."""
    state = WorkerState.DRAINING if draining else WorkerState.READY

    def body(tr: Transaction) -> StateSet | AlreadyDead | UnknownWorker:
        worker = read_worker(tr.get(keys.worker(worker_id)))
        if worker is None:
            return UnknownWorker(worker_id)
        if not alive(worker):
            return AlreadyDead(worker_id)
        if worker.state is not state:
            tr.set(keys.worker(worker_id), replace(worker, state=state).encode())
            tr.add(keys.signal(worker_id), 1)
        return StateSet(worker_id)

    return await db.run(body)


async def list_workers(db: Database) -> list[WorkerView]:
    """Every worker not yet buried, dead ones too, in order of their ids.

    Four range reads of one small pair per worker: the slots themselves are not read.
    """

    def body(tr: Reads) -> list[WorkerView]:
        values = [read_worker(raw) for _, raw in tr.get_range(*prefix_range(keys.WORKER))]
        beats = dict(tr.get_range(*prefix_range(keys.BEAT)))
        loads = dict(tr.get_range(*prefix_range(keys.LOAD)))
        tallies = dict(tr.get_range(*prefix_range(keys.TALLY)))
        views: list[WorkerView] = []
        for value in values:
            if value is None:
                continue
            name = value.worker_id
            held, leaving, reserved = tally_counts(int64(tallies.get(keys.tally(name))))
            views.append(
                WorkerView(
                    value,
                    int64(beats.get(keys.beat(name))),
                    read_load(loads.get(keys.load(name))),
                    held,
                    leaving,
                    reserved,
                )
            )
        return views

    return await db.read(body)


async def bury_worker(
    db: Database, worker_id: str
) -> Buried | StillHolds | NotDead | UnknownWorker:
    """Clear what a dead worker left, once no live is guarded by its generation.

    Its id stays refused for ever, by a small tombstone.
    """

    def body(tr: Transaction) -> Buried | StillHolds | NotDead | UnknownWorker:
        raw, tomb = tr.get_many([keys.worker(worker_id), keys.tomb(worker_id)])
        worker = read_worker(raw)
        if worker is None:
            return UnknownWorker(worker_id) if tomb is None else Buried(worker_id)
        if alive(worker):
            return NotDead(worker_id)
        lives = tr.get_range(*prefix_range(keys.by_worker_of(worker_id)))
        if lives:
            return StillHolds(len(lives))
        node = tr.get(keys.node(worker.node))
        if node is not None and node.decode() == worker_id:
            tr.clear(keys.node(worker.node))
        for spaces in (keys.slots_of, keys.taken_of, keys.reservations_of):
            tr.clear_range(*prefix_range(spaces(worker_id)))
        for space in (keys.worker, keys.beat, keys.load, keys.tally, keys.signal):
            tr.clear(space(worker_id))
        tr.set(keys.tomb(worker_id), b"")
        return Buried(worker_id)

    return await db.run(body)


async def get_worker(db: Database, worker_id: str) -> WorkerValue | None:
    """The incarnation, None when it is unknown or buried."""
    return await db.read(lambda tr: read_worker(tr.get(keys.worker(worker_id))))


def worker_signal_key(worker_id: str) -> bytes:
    """The key to watch: it changes with all that the worker owns and all that is wanted of it."""
    return keys.signal(worker_id)


async def node_holder(db: Database, node: str) -> tuple[WorkerValue, int] | None:
    """The incarnation that has the node's name, with its beat; None when none lives there."""

    def body(tr: Reads) -> tuple[WorkerValue, int] | None:
        name = tr.get(keys.node(node))
        if name is None:
            return None
        raw, beats = tr.get_many([keys.worker(name.decode()), keys.beat(name.decode())])
        holder = read_worker(raw)
        return (holder, int64(beats)) if holder is not None and alive(holder) else None

    return await db.read(body)
