"""The invariants of ownership, checked at every committed version of a memory store.

It looks only at what each commit changed in the store, never at what a transaction meant or said.
"""

from collections import Counter
from collections.abc import Mapping

from ownership import keys, rules
from ownership.kv import INT64_MASK, int64
from ownership.memory_store import MemoryStore
from ownership.slots import reservation_index
from ownership.tuple_layer import unpack
from schemas.store_values import (
    Cursor,
    GenerationValue,
    LiveState,
    LiveStatus,
    SlotState,
    SlotValue,
    WorkerState,
    WorkerValue,
)


class Checker:
    """Hang it on a store; `broken` then says what was broken, and at which version."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.old: dict[bytes, bytes] = {}
        self.commits = 0
        self.broken: list[str] = []
        store.on_commit = self

    def __call__(self, version: int, changes: Mapping[bytes, bytes | None]) -> None:
        self.commits += 1
        try:
            self._check(changes)
        except AssertionError as error:
            # Raised in a callback of the loop it would only be logged.
            self.broken.append(f"version {version}: {error}")

    def _check(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, raw in changes.items():
            before = self.old.get(key)
            match unpack(key):
                case ("gen", str(live_id)):
                    self._epochs_grow_by_one(live_id, before, raw)
                case ("cursor", str(live_id)):
                    self._cursors_grow_under_the_owner(live_id, before, raw, changes)
                case ("slot", str(worker_id), int(index)):
                    self._slots_change_hands_properly(worker_id, index, before, raw)
                case ("worker", str(_)):
                    self._the_dead_stay_dead(before, raw)
        for key, raw in changes.items():
            if raw is None:
                self.old.pop(key, None)
            else:
                self.old[key] = raw
        if any(
            unpack(key)[0] in ("gen", "slot", "tally", "taken", "reservation", "live")
            for key in changes
        ):
            self._everything_agrees()

    def _value(self, key: bytes) -> bytes | None:
        return self.store.contents.values.get(key)

    def _epochs_grow_by_one(self, live_id: str, before: bytes | None, raw: bytes | None) -> None:
        assert raw is not None, f"the epoch of {live_id} was forgotten"
        new = GenerationValue.decode(raw)
        old_epoch = 0 if before is None else GenerationValue.decode(before).epoch
        if new.worker_id:
            assert new.epoch == old_epoch + 1, (live_id, old_epoch, new)
        else:
            assert new.epoch == old_epoch, (live_id, old_epoch, new)

    def _cursors_grow_under_the_owner(
        self,
        live_id: str,
        before: bytes | None,
        raw: bytes | None,
        changes: Mapping[bytes, bytes | None],
    ) -> None:
        if raw is None:
            assert self._value(keys.live(live_id)) is None, f"the cursor of {live_id} was forgotten"
            return
        new = Cursor.decode(raw)
        if before is not None:
            assert new.next_offset >= Cursor.decode(before).next_offset, (live_id, new)
        if new.release_id and keys.gen(live_id) not in changes:
            # The release id says who released: the generation at this place in the order.
            value = GenerationValue.decode(self._value(keys.gen(live_id)) or b"")
            assert new.release_id.startswith(f"{value.worker_id}/{value.epoch}/"), (new, value)

    def _slots_change_hands_properly(
        self, worker_id: str, index: int, before: bytes | None, raw: bytes | None
    ) -> None:
        value = self._value(keys.worker(worker_id))
        if value is None:
            assert raw is None
            return
        worker = WorkerValue.decode(value)
        assert 0 <= index < worker.capacity
        old = None if before is None else SlotValue.decode(before)
        new = None if raw is None else SlotValue.decode(raw)
        change = (old and old.state, new and new.state)
        alive = worker.state is not WorkerState.DEAD
        allowed = {
            (None, SlotState.HELD),
            (None, SlotState.RESERVED),
            (SlotState.RESERVED, SlotState.HELD),
            (SlotState.RESERVED, None),
            (SlotState.LEAVING, None),
            (SlotState.HELD, SlotState.LEAVING if alive else None),
        }
        assert change in allowed, (worker_id, index, old, new)
        if new is not None and new.state is not SlotState.LEAVING:
            assert worker.state is WorkerState.READY, f"{worker_id} was admitted something"

    def _the_dead_stay_dead(self, before: bytes | None, raw: bytes | None) -> None:
        if before is not None and WorkerValue.decode(before).state is WorkerState.DEAD:
            assert raw is None or WorkerValue.decode(raw).state is WorkerState.DEAD

    def _everything_agrees(self) -> None:
        slots: dict[tuple[str, int], SlotValue] = {}
        generations: dict[str, GenerationValue] = {}
        lives: dict[str, LiveState] = {}
        owned: dict[tuple[str, str], int] = {}
        tallies: dict[str, int] = {}
        marked: dict[tuple[str, int], int] = {}
        tokens: dict[tuple[str, int], str] = {}
        for key, raw in self.store.contents.values.items():
            match unpack(key):
                case ("slot", str(worker_id), int(index)):
                    slots[worker_id, index] = SlotValue.decode(raw)
                case ("gen", str(live_id)):
                    generations[live_id] = GenerationValue.decode(raw)
                case ("live", str(live_id)):
                    lives[live_id] = LiveState.decode(raw)
                case ("by_worker", str(worker_id), str(live_id)):
                    owned[worker_id, live_id] = int64(raw)
                case ("reservation", str(worker_id), str(token)):
                    tokens[worker_id, reservation_index(raw)] = token
                case ("tally", str(worker_id)):
                    tallies[worker_id] = int64(raw)
                case ("taken", str(worker_id), int(number)):
                    marked[worker_id, number] = int64(raw) & INT64_MASK
        holders = {
            (value.worker_id, value.slot): (live_id, value.epoch)
            for live_id, value in generations.items()
            if value.worker_id
        }
        held = {
            place: (slot.live_id, slot.epoch)
            for place, slot in slots.items()
            if slot.state is SlotState.HELD
        }
        assert held == holders, "held slots and committed generations are one and the same"
        reserved = {
            place: slot.token for place, slot in slots.items() if slot.state is SlotState.RESERVED
        }
        assert reserved == tokens, "reserved slots and reservations are one and the same"
        assert owned == {
            (value.worker_id, live_id): value.epoch
            for live_id, value in generations.items()
            if value.worker_id
        }
        for live_id, live in lives.items():
            is_open = live.state is LiveStatus.OPEN
            assert is_open == bool(generations[live_id].worker_id), live_id
        counted: dict[str, Counter[SlotState]] = {worker_id: Counter() for worker_id in tallies}
        for (worker_id, _), slot in slots.items():
            counted[worker_id][slot.state] += 1
        for worker_id, tally in tallies.items():
            expected = tuple(counted[worker_id][state] for state in SlotState)
            assert rules.tally_counts(tally) == expected, worker_id
        bits: Counter[tuple[str, int]] = Counter()
        for worker_id, index in slots:
            bits[worker_id, rules.word_of(index)] |= 1 << index % rules.SLOTS_PER_WORD
        assert bits == Counter(marked), "each slot that is taken is marked, and no other"
