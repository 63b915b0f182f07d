"""The protocol as a plain Python program: one call after the other, on dictionaries.

It is written from the description, not from the transactions, and knows nothing of slots' numbers.
"""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass
class RefLive:
    open: bool = False
    owner: tuple[str, int] | None = None
    epoch: int = 0
    cursor: int | None = None


@dataclass
class RefWorker:
    node: str
    capacity: int
    state: str = "ready"
    beat: int = 1
    held: set[tuple[str, int]] = field(default_factory=set)
    leaving: set[tuple[str, int]] = field(default_factory=set)
    reserved: set[str] = field(default_factory=set)

    @property
    def full(self) -> bool:
        return len(self.held) + len(self.leaving) + len(self.reserved) >= self.capacity


class Reference:
    def __init__(self) -> None:
        self.lives: dict[str, RefLive] = {}
        self.workers: dict[str, RefWorker] = {}
        self.nodes: dict[str, str] = {}
        self.mark = 0
        self.disposing: set[int] = set()

    def live(self, live_id: str) -> RefLive:
        return self.lives.setdefault(live_id, RefLive())

    def register(self, worker_id: str, node: str, capacity: int) -> str:
        known = self.workers.get(worker_id)
        if known is not None:
            return "WorkerDead" if known.state == "dead" else "Registered"
        if node in self.nodes:
            self.workers[self.nodes[node]].state = "dead"
        self.workers[worker_id] = RefWorker(node, capacity)
        self.nodes[node] = worker_id
        return "Registered"

    def beat(self, worker_id: str) -> str:
        known = self.workers.get(worker_id)
        if known is None or known.state == "dead":
            return "WorkerDead"
        known.beat += 1
        return "BeatOk"

    def mark_dead(self, worker_id: str, seen: int) -> str:
        known = self.workers.get(worker_id)
        if known is None:
            return "UnknownWorker"
        if known.state == "dead":
            return "AlreadyDead"
        if known.beat != seen:
            return "BeatMoved"
        known.state = "dead"
        return "MarkedDead"

    def drain(self, worker_id: str, draining: bool) -> str:
        known = self.workers.get(worker_id)
        if known is None:
            return "UnknownWorker"
        if known.state == "dead":
            return "AlreadyDead"
        known.state = "draining" if draining else "ready"
        return "StateSet"

    def _admit(self, target: str) -> str | None:
        known = self.workers.get(target)
        return None if known is not None and known.state == "ready" else "WorkerNotReady"

    def _leave(self, live_id: str, live: RefLive) -> None:
        if live.owner is None:
            return
        worker_id, epoch = live.owner
        worker = self.workers[worker_id]
        worker.held.discard((live_id, epoch))
        if worker.state != "dead":
            worker.leaving.add((live_id, epoch))

    def _own(self, live_id: str, live: RefLive, target: str) -> None:
        live.epoch += 1
        live.owner = (target, live.epoch)
        self.workers[target].held.add((live_id, live.epoch))

    def create(self, live_id: str, target: str) -> str:
        live = self.live(live_id)
        if live.open:
            return "LiveExists"
        refused = self._admit(target)
        if refused:
            return refused
        if self.workers[target].full:
            return "NoFreeSlot"
        live.open = True
        live.cursor = max(live.cursor or 0, self.mark)
        self._own(live_id, live, target)
        return "Created"

    def close(self, live_id: str, by: tuple[str, int] | None) -> str:
        live = self.lives.get(live_id)
        if live is None or live.epoch == 0:
            return "UnknownLive"
        if not live.open:
            return "AlreadyClosed"
        if by is not None and by != live.owner:
            return "StaleGeneration"
        self._leave(live_id, live)
        live.owner, live.open = None, False
        return "Closed"

    def commit(
        self, live_id: str, expected: tuple[str, int] | None, target: str, token: str | None
    ) -> str:
        live = self.lives.get(live_id)
        if live is None or not live.open:
            return "LiveNotOpen"
        if live.owner != expected:
            return "SourceMoved"
        refused = self._admit(target)
        if refused:
            return refused
        worker = self.workers[target]
        if token is not None:
            if token not in worker.reserved:
                return "ReservationGone"
            worker.reserved.remove(token)
        elif worker.full:
            return "NoFreeSlot"
        self._leave(live_id, live)
        self._own(live_id, live, target)
        return "CommittedGeneration"

    def claim(self, live_id: str, generation: tuple[str, int]) -> str:
        live = self.lives.get(live_id)
        return "Claimed" if live is not None and live.owner == generation else "StaleGeneration"

    def reserve(self, target: str, token: str) -> str:
        known = self.workers.get(target)
        if known is not None and token in known.reserved:
            return "Reserved"
        refused = self._admit(target)
        if refused or known is None:
            return refused or "WorkerNotReady"
        if known.full:
            return "NoFreeSlot"
        known.reserved.add(token)
        return "Reserved"

    def free_reserved(self, worker_id: str, token: str) -> bool:
        known = self.workers.get(worker_id)
        if known is None or token not in known.reserved:
            return False
        known.reserved.remove(token)
        return True

    def confirm_gone(self, live_id: str, old: tuple[str, int]) -> bool:
        known = self.workers.get(old[0])
        if known is None or (live_id, old[1]) not in known.leaving:
            return False
        known.leaving.remove((live_id, old[1]))
        return True

    def release(self, live_id: str, generation: tuple[str, int], at: int, to: int) -> str:
        live = self.lives.get(live_id)
        if live is None or live.owner != generation:
            return "Stale"
        if live.cursor != at:
            return "CursorMoved"
        live.cursor = to
        return "Released"

    def dispose(self, live_id: str, offset: int) -> str:
        if offset in self.disposing:
            return "Disposed"
        live = self.lives.get(live_id)
        if live is not None and live.open:
            return "BelongsToOpenLive"
        floor = max(self.mark, (live.cursor or 0) if live is not None else 0)
        if offset < floor:
            return "AlreadyDisposed"
        self.live(live_id).cursor = offset + 1
        self.disposing.add(offset)
        return "Disposed"

    def raise_watermark(self, offset: int, lettered: Collection[int]) -> int:
        unknown = [begun for begun in self.disposing if begun not in lettered]
        self.mark = max(self.mark, min([offset, *unknown]))
        self.disposing = {begun for begun in self.disposing if begun >= self.mark}
        return self.mark
