"""The seven invariants, judged from a history alone.

The checkers know the design's promises and the shape of a history, and nothing of how the system
keeps them: who may commit, what a slot is, that a record is spoken once. `records` holds the third
invariant, which needs the text; here stand the others.

PURE.
"""

from collections import Counter
from dataclasses import dataclass, field

from tests.sim import history as h
from tests.sim.heard_again import Counts
from tests.sim.records import check_records
from tests.sim.verdict import Invariant, Violation

__all__ = ["Invariant", "Verdict", "Violation", "check"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`moves` counts committed generations after a live's first; `releases` moved cursors."""

    violations: tuple[Violation, ...]
    releases: int
    moves: int
    false_refusals: int
    heard: Counts = field(default_factory=Counts)

    @property
    def by_invariant(self) -> Counter[str]:
        return Counter(one.invariant.value for one in self.violations)


def check(history: h.History) -> Verdict:
    """Everything that is wrong with a history."""
    judge = _Judge()
    handlers = {kind: getattr(judge, name, None) for kind, name in _HANDLERS.items()}
    for at, entry in enumerate(history):
        handler = handlers.get(type(entry))
        if handler is not None:
            judge.at = at
            handler(entry)
    heard = Counts()
    violations = judge.violations + check_records(history, heard)
    violations.sort(key=lambda one: one.at)
    false = sum(one.invariant is Invariant.FALSE_REFUSAL for one in violations)
    return Verdict(tuple(violations), judge.releases, judge.moves, false, heard)


_HANDLERS = {
    h.WorkerWritten: "worker",
    h.GenerationWritten: "generation",
    h.LiveWritten: "live",
    h.CursorWritten: "cursor",
    h.ProgressWritten: "progress",
    h.SlotWritten: "slot",
    h.ReleaseAsked: "asked",
    h.ReleaseRefused: "refused",
    h.MoveAsked: "move_asked",
    h.Bound: "bound",
    h.Unbound: "unbound",
    h.Heard: "heard",
    h.Gone: "gone",
    h.Broke: "broke",
    h.Ended: "ended",
}


class _Judge:
    """One pass in the history's order, which is the commit order for commits."""

    def __init__(self) -> None:
        self.at = 0
        self.violations: list[Violation] = []
        self.releases = 0
        self.moves = 0
        self._process_of: dict[str, str] = {}
        """Worker id to the process that registered it first."""
        self._worker: dict[str, h.WorkerWritten] = {}
        self._owner: dict[str, h.GenerationWritten] = {}
        """The committed generation of each live, at this place of the commit order."""
        self._epoch: dict[str, int] = {}
        self._open: dict[str, bool] = {}
        self._asked: dict[str, h.ReleaseAsked] = {}
        self._moves_asked: dict[str, h.MoveAsked] = {}
        self._commit_ids: set[str] = set()
        self._slots: dict[str, dict[int, h.SlotWritten]] = {}
        self._bound: dict[str, dict[int, h.Bound]] = {}
        """Process to its bindings."""
        self._last_release: tuple[int, str] = (-1, "")
        """Version and live of the last cursor written by a release."""

    def _wrong(self, invariant: Invariant, live_id: str, detail: str) -> None:
        self.violations.append(Violation(invariant, self.at, live_id, detail))

    # -- 1: one owner, 2: epochs

    def worker(self, entry: h.WorkerWritten) -> None:
        self._process_of.setdefault(entry.worker_id, entry.process)
        self._worker[entry.worker_id] = entry

    def live(self, entry: h.LiveWritten) -> None:
        self._open[entry.live_id] = entry.state == "open"

    def generation(self, entry: h.GenerationWritten) -> None:
        live_id = entry.live_id
        before, last = self._owner.get(live_id), self._epoch.get(live_id, 0)
        wanted = last + 1 if entry.worker_id else last
        if entry.epoch != wanted:
            self._wrong(
                Invariant.EPOCHS, live_id, f"epoch {entry.epoch} was committed after {last}"
            )
        self._epoch[live_id] = max(last, entry.epoch)
        if not entry.worker_id:
            self._owner.pop(live_id, None)
            return
        if entry.commit_id in self._commit_ids:
            self._wrong(Invariant.EPOCHS, live_id, f"{entry.commit_id} was applied twice")
        self._commit_ids.add(entry.commit_id)
        asked = self._moves_asked.get(entry.commit_id)
        if asked is not None:
            actual = None if before is None else (before.worker_id, before.epoch)
            if actual != (asked.worker_id, asked.epoch):
                self._wrong(
                    Invariant.ONE_OWNER,
                    live_id,
                    f"a move from {asked.worker_id}/{asked.epoch} was committed over {actual}",
                )
        if last:
            self.moves += 1
        self._owner[live_id] = entry
        self._fits(entry.worker_id, live_id)

    def move_asked(self, entry: h.MoveAsked) -> None:
        self._moves_asked.setdefault(entry.commit_id, entry)

    def asked(self, entry: h.ReleaseAsked) -> None:
        self._asked[entry.release_id] = entry

    def cursor(self, entry: h.CursorWritten) -> None:
        live_id, owner = entry.live_id, self._owner.get(entry.live_id)
        if not entry.release_id:
            if owner is not None and owner.version != entry.version:
                self._wrong(
                    Invariant.ONE_OWNER, live_id, f"{entry.process} moved an owned live's cursor"
                )
            return
        asked = self._asked.get(entry.release_id)
        if owner is not None and owner.version == entry.version:
            return
        self.releases += 1
        self._last_release = (entry.version, live_id)
        if asked is None or asked.live_id != live_id:
            self._wrong(Invariant.ONE_OWNER, live_id, "a cursor moved that nobody asked to move")
            return
        if owner is None or (owner.worker_id, owner.epoch) != (asked.worker_id, asked.epoch):
            actual = "nobody" if owner is None else f"{owner.worker_id}/{owner.epoch}"
            self._wrong(
                Invariant.ONE_OWNER,
                live_id,
                f"{entry.process} released as {asked.worker_id}/{asked.epoch}, owner is {actual}",
            )
        elif self._process_of.get(owner.worker_id) != entry.process:
            self._wrong(
                Invariant.ONE_OWNER,
                live_id,
                f"{entry.process} released as {owner.worker_id}, which is another process",
            )

    def progress(self, entry: h.ProgressWritten) -> None:
        """A checkpoint comes with a release, or with the generation that ends the writer's."""
        if entry.segments is None:
            return
        owner = self._owner.get(entry.live_id)
        handed = owner is not None and owner.version == entry.version
        if not handed and self._last_release != (entry.version, entry.live_id):
            self._wrong(
                Invariant.ONE_OWNER, entry.live_id, "a checkpoint was written without a release"
            )

    # -- 4: no overshoot

    def _fits(self, worker_id: str, live_id: str) -> None:
        worker = self._worker.get(worker_id)
        held = sum(one.worker_id == worker_id for one in self._owner.values())
        if worker is None or held > worker.capacity:
            room = 0 if worker is None else worker.capacity
            self._wrong(Invariant.OVERSHOOT, live_id, f"{worker_id} owns {held} lives of {room}")

    def slot(self, entry: h.SlotWritten) -> None:
        slots = self._slots.setdefault(entry.worker_id, {})
        before = slots.get(entry.slot)
        worker = self._worker.get(entry.worker_id)
        if not entry.state:
            slots.pop(entry.slot, None)
            if before is not None and (worker is None or worker.state != "dead"):
                self._not_bound(before)
            return
        slots[entry.slot] = entry
        room = 0 if worker is None else worker.capacity
        if len(slots) > room or not 0 <= entry.slot < room:
            self._wrong(
                Invariant.OVERSHOOT,
                entry.live_id,
                f"slot {entry.slot} of {entry.worker_id}, which has {room}",
            )
        taken = (
            before is not None
            and before.state != "reserved"
            and (before.live_id, before.epoch) != (entry.live_id, entry.epoch)
        )
        if taken and before is not None:
            self._wrong(
                Invariant.OVERSHOOT,
                entry.live_id,
                f"slot {entry.slot} of {entry.worker_id} is {before.state} by {before.live_id}",
            )

    def _not_bound(self, freed: h.SlotWritten) -> None:
        """A slot that is free has no runtime behind it any more."""
        process = self._process_of.get(freed.worker_id, "")
        for one in self._bound.get(process, {}).values():
            if (one.live_id, one.epoch) == (freed.live_id, freed.epoch):
                self._wrong(
                    Invariant.OVERSHOOT,
                    freed.live_id,
                    f"slot {freed.slot} of {freed.worker_id} is free and its live still bound",
                )

    def bound(self, entry: h.Bound) -> None:
        bound = self._bound.setdefault(entry.process, {})
        bound[entry.binding] = entry
        lives = len({one.live_id for one in bound.values()})
        capacity = max(
            (
                worker.capacity
                for worker_id, worker in self._worker.items()
                if self._process_of[worker_id] == entry.process
            ),
            default=0,
        )
        if not capacity:
            self._wrong(
                Invariant.ONE_OWNER,
                entry.live_id,
                f"{entry.process} acts under another's worker id",
            )
        elif lives > capacity:
            self._wrong(
                Invariant.OVERSHOOT, entry.live_id, f"{entry.process} runs {lives} of {capacity}"
            )

    def unbound(self, entry: h.Unbound) -> None:
        self._bound.get(entry.process, {}).pop(entry.binding, None)

    def gone(self, entry: h.Gone) -> None:
        self._bound.pop(entry.process, None)

    # -- 5: refused below

    def heard(self, entry: h.Heard) -> None:
        bound = self._bound.get(entry.process, {})
        mine = bound.get(entry.tick_binding)
        if (entry.tick_live_id, entry.tick_epoch) != (entry.live_id, entry.epoch):
            detail = f"sound of {entry.tick_live_id}/{entry.tick_epoch} came out of {entry.live_id}"
            self._wrong(Invariant.BELOW, entry.live_id, f"{detail}/{entry.epoch}")
        elif mine is None:
            self._wrong(
                Invariant.BELOW,
                entry.live_id,
                f"sound of binding {entry.tick_binding}, which ended",
            )
        elif any(
            one.live_id == entry.live_id and one.epoch > entry.epoch for one in bound.values()
        ):
            self._wrong(Invariant.BELOW, entry.live_id, f"sound of the old epoch {entry.epoch}")

    # -- 6: progress, 7: false refusals

    def refused(self, entry: h.ReleaseRefused) -> None:
        owner = self._owner.get(entry.live_id)
        if owner is None or (owner.worker_id, owner.epoch) != (entry.worker_id, entry.epoch):
            return
        if self._process_of.get(entry.worker_id) == entry.process:
            self._wrong(
                Invariant.FALSE_REFUSAL,
                entry.live_id,
                f"{entry.process} owns it and was refused: {entry.reason}",
            )

    def broke(self, entry: h.Broke) -> None:
        self._wrong(Invariant.BROKE, "", f"{entry.process}: {entry.error}")

    def ended(self, entry: h.Ended) -> None:
        for live_id in entry.waiting:
            owner = self._owner.get(live_id)
            worker = None if owner is None else self._worker.get(owner.worker_id)
            # An open live that nobody living owns waits rightly while no slot is free anywhere.
            orphan = self._open.get(live_id, False) and (worker is None or worker.state == "dead")
            if entry.capacity_left or not orphan:
                self._wrong(Invariant.PROGRESS, live_id, "something is left to do, for ever")
