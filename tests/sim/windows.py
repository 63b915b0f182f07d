"""How often the dangerous windows were really entered. A run set that missed one proves nothing.

Most are read from the history; the store's and the broker's stand-ins count what no history shows.

PURE.
"""

from collections import Counter

from tests.sim import history as h

REQUIRED = (
    "moves",
    "planned_moves",
    "there_and_back",
    "superseded_owner_alive",
    "superseded_owner_bound",
    "release_asked_while_superseded",
    "stale_release_refused",
    "paused_between_commit_and_feed",
    "fed_after_superseded",
    "heard_after_superseded",
    "unknown_applied",
    "unknown_dropped",
    "unknown_late",
    "unknown_move",
    "conflict_injected",
    "conflict_real",
    "overshoot_attempt",
    "slot_leaving",
    "crash",
    "restart",
    "twin",
    "pause",
    "drain",
    "recovery",
    "recovery_by_two",
    "closed_and_made_anew",
    "interrupt_skipped",
    "segment_made_again",
    "stage_lost",
    "tick_refused_below",
    "rebalance",
    "rewind",
    "fetched_again",
    "zombie_custody",
    "watch_lost",
    "watch_late",
    "dead_letter",
    "dead_letter_repeated",
    "duplicate_seq",
    "broker_cut",
    "broker_hung",
    "broker_away",
    "started_without_broker",
    "moved_without_broker",
    "send_unknown_applied",
    "send_unknown_lost",
    "send_unknown_late",
    "push_repeated",
    "store_cut",
    "store_away",
    "store_call_failed",
    "taken_over_while_cut",
    "truncated",
    "truncated_past_cursor",
    "lost_told_by_owner",
    "lost_told_by_custodian",
    "lost_told_unowned",
    "text_lost_told",
    "crashed_mid_sentence",
    "handed_over_mid_segment",
)
"""Every one must be above zero over a run set of any size worth the name."""


def count(history: h.History) -> Counter[str]:
    """The windows that this history shows."""
    found: Counter[str] = Counter()
    look = _Look(found)
    handlers = {kind: getattr(look, name) for kind, name in _HANDLERS.items()}
    for entry in history:
        handler = handlers.get(type(entry))
        if handler is not None:
            handler(entry)
    return found


_HANDLERS = {
    h.WorkerWritten: "worker",
    h.GenerationWritten: "generation",
    h.LiveWritten: "live",
    h.CursorWritten: "cursor",
    h.SlotWritten: "slot",
    h.ReleaseRefused: "refused",
    h.MoveAsked: "move_asked",
    h.Bound: "bound",
    h.Unbound: "unbound",
    h.Fed: "fed",
    h.Heard: "heard",
    h.Fault: "fault",
    h.Gone: "gone",
    h.Lettered: "lettered",
    h.Produced: "produced",
    h.Truncated: "truncated",
    h.ErrorTold: "error_told",
}

_FAULTS = {"lose_stage": "stage_lost"}


class _Look:
    def __init__(self, found: Counter[str]) -> None:
        self.found = found
        self._process_of: dict[str, str] = {}
        self._dead: set[str] = set()
        self._gone: set[str] = set()
        self._owners: dict[str, list[str]] = {}
        """Live to its owners, in order."""
        self._epoch: dict[str, int] = {}
        self._bound: set[tuple[str, str]] = set()
        self._asked: dict[tuple[str, str, int], str] = {}
        self._by_source: dict[str, h.MoveAsked] = {}
        self._closed: set[str] = set()
        self._fed: set[tuple[str, int]] = set()
        self._cut: dict[str, set[str]] = {"store": set(), "broker": set()}
        """Processes that are cut off from it."""
        self._open: set[str] = set()
        self._cursor: dict[str, int] = {}
        self._last: dict[str, tuple[int, int]] = {}
        """Live to the partition and offset of its last record."""

    def worker(self, entry: h.WorkerWritten) -> None:
        self._process_of.setdefault(entry.worker_id, entry.process)
        if entry.state == "dead":
            self._dead.add(entry.worker_id)

    def live(self, entry: h.LiveWritten) -> None:
        if entry.state == "open":
            self._open.add(entry.live_id)
        else:
            self._open.discard(entry.live_id)
        if entry.state == "closed":
            self._closed.add(entry.live_id)
        elif entry.live_id in self._closed:
            self._closed.discard(entry.live_id)
            self.found["closed_and_made_anew"] += 1

    def generation(self, entry: h.GenerationWritten) -> None:
        if not entry.worker_id:
            return
        owners = self._owners.setdefault(entry.live_id, [])
        self._epoch[entry.live_id] = entry.epoch
        if owners:
            self.found["moves"] += 1
            asked = self._by_source.get(entry.commit_id)
            source = owners[-1]
            process = self._process_of.get(source, "")
            if asked is not None and asked.process == process:
                self.found["planned_moves"] += 1
            elif source in self._dead:
                self.found["recovery"] += 1
            if process in self._cut["store"]:
                self.found["taken_over_while_cut"] += 1
            if self._process_of.get(entry.worker_id, "") in self._cut["broker"]:
                self.found["moved_without_broker"] += 1
            if process not in self._gone:
                self.found["superseded_owner_alive"] += 1
                if (process, entry.live_id) in self._bound:
                    self.found["superseded_owner_bound"] += 1
        if entry.worker_id in owners[:-1] and owners[-1] != entry.worker_id:
            self.found["there_and_back"] += 1
        owners.append(entry.worker_id)

    def produced(self, entry: h.Produced) -> None:
        self._last[entry.live_id] = (entry.partition, entry.offset)

    def truncated(self, entry: h.Truncated) -> None:
        self.found["truncated"] += 1
        for live_id, (partition, last) in self._last.items():
            if partition == entry.partition and live_id in self._open:
                cursor = self._cursor.get(live_id, 0)
                self.found["truncated_past_cursor"] += cursor < entry.log_start and cursor <= last

    def error_told(self, entry: h.ErrorTold) -> None:
        if entry.reason == "text_lost":
            self.found["text_lost_told"] += 1
        else:
            self.found["lost_told_by_owner"] += 1

    def cursor(self, entry: h.CursorWritten) -> None:
        self._cursor[entry.live_id] = entry.next_offset
        if entry.skipped is not None:
            self.found["interrupt_skipped"] += 1

    def slot(self, entry: h.SlotWritten) -> None:
        if entry.state == "leaving":
            self.found["slot_leaving"] += 1

    def refused(self, entry: h.ReleaseRefused) -> None:
        if entry.reason == "stale":
            self.found["stale_release_refused"] += 1

    def move_asked(self, entry: h.MoveAsked) -> None:
        self._by_source[entry.commit_id] = entry
        source = (entry.live_id, entry.worker_id, entry.epoch)
        if self._asked.setdefault(source, entry.process) != entry.process:
            self.found["recovery_by_two"] += 1

    def bound(self, entry: h.Bound) -> None:
        self._bound.add((entry.process, entry.live_id))

    def unbound(self, entry: h.Unbound) -> None:
        self._bound.discard((entry.process, entry.live_id))

    def fed(self, entry: h.Fed) -> None:
        if self._epoch.get(entry.live_id, 0) > entry.epoch:
            self.found["fed_after_superseded"] += 1
        name = (entry.live_id, entry.segment)
        if name in self._fed:
            self.found["segment_made_again"] += 1
        self._fed.add(name)

    def heard(self, entry: h.Heard) -> None:
        if self._epoch.get(entry.live_id, 0) > entry.epoch:
            self.found["heard_after_superseded"] += 1

    def fault(self, entry: h.Fault) -> None:
        self.found[_FAULTS.get(entry.kind, entry.kind)] += 1
        what, _, how = entry.kind.partition("_")
        if what in self._cut and how in ("cut", "hung"):
            self._cut[what].add(entry.process)
        elif what in self._cut and how == "back":
            self._cut[what].discard(entry.process)

    def gone(self, entry: h.Gone) -> None:
        self._gone.add(entry.process)

    def lettered(self, entry: h.Lettered) -> None:
        self.found["dead_letter"] += 1
        if entry.reason == "before_log_start":
            by_name = entry.live_id in self._open
            self.found["lost_told_by_custodian" if by_name else "lost_told_unowned"] += 1
        if entry.reason == "duplicate_seq":
            self.found["duplicate_seq"] += 1
