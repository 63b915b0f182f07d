"""What is left to do when the faults are over, read from the store and the topics.

PURE.
"""

from collections.abc import Mapping

from ownership import keys
from ownership.kv import int64
from ownership.tuple_layer import prefix_range
from ownership.values import read_checkpoint, read_cursor, read_generation, read_live, read_worker
from schemas.store_values import LiveStatus, WorkerState
from tests.sim.recorder import Recorder

Store = Mapping[bytes, bytes]


def waiting(store: Store, rec: Recorder, partitions: int) -> list[str]:
    """The lives for which something is left to do; "" for records without a live."""
    found: list[str] = []
    for live_id, last in rec.last_offset.items():
        partition = rec.partition[live_id]
        cursor = read_cursor(store.get(keys.cursor(live_id)))
        floor = 0 if cursor is None else cursor.next_offset
        live = read_live(store.get(keys.live(live_id)))
        is_open = live is not None and live.state is LiveStatus.OPEN
        if not is_open:
            floor = max(floor, int64(store.get(keys.watermark(partition))))
        if floor <= last:
            found.append(live_id)
        elif is_open:
            progress = read_checkpoint(store.get(keys.progress(live_id)))
            unspoken = progress is not None and (progress.segments or progress.next_char >= 0)
            if unspoken or read_generation(store.get(keys.gen(live_id))) is None:
                found.append(live_id)
    if rec.bad_keys - rec.lettered:
        found.append("")
    for partition in range(partitions):
        begin, end = prefix_range(keys.disposing_of(partition))
        found += [
            raw.decode()
            for key, raw in store.items()
            if begin <= key < end and (partition, keys.last_int(key)) not in rec.lettered
        ]
    return found


def free_slots(store: Store) -> int:
    """Of the workers that take lives."""
    free = 0
    for key, raw in store.items():
        worker = read_worker(raw) if key.startswith(keys.WORKER) else None
        if worker is not None and worker.state is WorkerState.READY:
            begin, end = prefix_range(keys.slots_of(worker.worker_id))
            free += worker.capacity - sum(begin <= one < end for one in store)
    return free
