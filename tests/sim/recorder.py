"""Writes the history of one run while it happens, from what passes the world's stand-ins."""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from ownership import keys
from ownership.values import read_cursor, read_generation
from schemas.dead_letter import DeadLetter, DeadLetterReason
from schemas.live_id import decode_key
from schemas.store_values import Checkpoint, LiveState, SlotValue, WorkerValue
from schemas.text_record import BadRecord, TextRecord, decode_text_record
from tests.sim import history as h
from tests.sim.loop import PROCESS, VirtualLoop

key_text = lru_cache(maxsize=65_536)(keys.last_text)


@lru_cache(maxsize=16_384)
def decoded_text(value: bytes | None) -> TextRecord | None:
    """None for bytes that are no record."""
    try:
        return decode_text_record(value)
    except BadRecord:
        return None


@lru_cache(maxsize=4_096)
def live_of(key: bytes | None) -> str:
    """The live that a record's key names, "" for a bad key."""
    try:
        return decode_key(key)
    except BadRecord:
        return ""


@lru_cache(maxsize=65_536)
def _slot_place(key: bytes) -> tuple[str, int]:
    parts = keys.unpack(key)
    return str(parts[1]), int(parts[2])  # type: ignore[arg-type]


class Recorder:
    """`history` is the run's; the rest is kept for windows and for the world's own look at it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.history: h.History = []
        self.windows: Counter[str] = Counter()
        self.committer = ""
        self.last_offset: dict[str, int] = {}
        self.partition: dict[str, int] = {}
        self.lettered: set[tuple[int, int]] = set()
        self.bad_keys: set[tuple[int, int]] = set()
        self.log_start: dict[int, int] = {}
        self.lost_below: dict[tuple[int, str], int] = {}
        """By partition and live ("": lives without an owner): what is told to be deleted below."""
        self.records = 0
        self.owner: dict[str, tuple[str, int]] = {}
        """Who owns each live at this place of the commit order."""
        self._loop = loop

    @property
    def now_ms(self) -> int:
        return int(self._loop.now_s * 1000)

    def note(self, entry: h.Entry) -> None:
        self.history.append(entry)

    # -- the store

    def commit(self, version: int, changes: Mapping[bytes, bytes | None]) -> None:
        """Called in commit order, with what each key holds from now on."""
        now, who, note = self.now_ms, self.committer, self.history.append
        for key, raw in changes.items():
            write = _WRITES.get(key[: key.index(0) + 1])
            if write is not None:
                write(self, note, now, version, who, key, raw)

    # -- topics

    def produced(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        live_id = live_of(key)
        record = decoded_text(value) if live_id else None
        kind, text, seq = "bad", "", None
        if record is not None:
            kind, text, seq = record.kind.value, record.text, record.seq
        self.records += 1
        if live_id:
            self.last_offset[live_id] = offset
            self.partition[live_id] = partition
        else:
            self.bad_keys.add((partition, offset))
        self.note(h.Produced(self.now_ms, partition, offset, live_id, kind, text, seq))

    def letter(self, value: bytes | None) -> None:
        assert value is not None
        letter = DeadLetter.decode(value)
        place = (letter.partition, letter.offset)
        if letter.reason is DeadLetterReason.BEFORE_LOG_START:
            live_id = live_of(letter.key)
            of = (letter.partition, live_id)
            self.lost_below[of] = max(self.lost_below.get(of, 0), letter.offset + 1)
            self.note(h.Lettered(self.now_ms, *place, letter.reason.value, live_id))
            return
        if place in self.lettered:
            self.windows["dead_letter_repeated"] += 1
        self.lettered.add(place)
        self.note(h.Lettered(self.now_ms, *place, letter.reason.value))

    def truncated(self, partition: int, log_start: int) -> None:
        self.log_start[partition] = max(log_start, self.log_start.get(partition, 0))
        self.note(h.Truncated(self.now_ms, partition, log_start))

    def told_lost(
        self, partition: int, offset: int, live_id: str = "", *, alone: bool = False
    ) -> bool:
        """Whether a record was deleted and that was said: of its live by name, or, unless `alone`,
        of all that nobody owns."""
        if offset >= self.log_start.get(partition, 0):
            return False
        names = (live_id,) if alone else ("", live_id)
        return any(offset < self.lost_below.get((partition, name), 0) for name in names)


def process_name() -> str:
    """The simulated process that runs now."""
    process = PROCESS.get()
    return "" if process is None else process.name


# -- one function for each key space, so that a commit costs one look per key ------------------


def _generation(rec, note, now, version, who, key, raw):  # type: ignore[no-untyped-def]
    live_id, value = key_text(key), read_generation(raw)
    if value is None:
        return
    if value.worker_id:
        rec.owner[live_id] = (value.worker_id, value.epoch)
    else:
        rec.owner.pop(live_id, None)
    note(
        h.GenerationWritten(
            now, version, who, live_id, value.worker_id, value.epoch, value.slot, value.commit_id
        )
    )


def _cursor(rec, note, now, version, who, key, raw):  # type: ignore[no-untyped-def]
    value = read_cursor(raw)
    if value is not None:
        skipped = None
        if value.skipped_from is not None and value.skipped_to is not None:
            skipped = (value.skipped_from, value.skipped_to)
        note(
            h.CursorWritten(
                now, version, who, key_text(key), value.next_offset, value.release_id, skipped
            )
        )


def _progress(rec, note, now, version, who, key, raw):  # type: ignore[no-untyped-def]
    if raw is None:
        note(h.ProgressWritten(now, version, who, key_text(key), None, 0, -1))
        return
    value = Checkpoint.decode(raw)
    segments = tuple(
        (one.start_offset, one.start_char, one.end_offset, one.end_char) for one in value.segments
    )
    note(
        h.ProgressWritten(
            now, version, who, key_text(key), segments, value.samples_emitted, value.next_char
        )
    )


def _slot(rec, note, now, version, who, key, raw):  # type: ignore[no-untyped-def]
    worker_id, index = _slot_place(key)
    if raw is None:
        note(h.SlotWritten(now, version, who, worker_id, index, "", 0, ""))
        return
    value = SlotValue.decode(raw)
    note(
        h.SlotWritten(
            now, version, who, worker_id, index, value.live_id, value.epoch, value.state.value
        )
    )


def _worker(rec, note, now, version, who, key, raw):  # type: ignore[no-untyped-def]
    if raw is not None:
        value = WorkerValue.decode(raw)
        note(h.WorkerWritten(now, version, who, value.worker_id, value.state.value, value.capacity))


def _live(rec, note, now, version, who, key, raw):  # type: ignore[no-untyped-def]
    if raw is not None:
        value = LiveState.decode(raw)
        note(
            h.LiveWritten(
                now,
                version,
                who,
                key_text(key),
                value.state.value,
                value.partition,
                value.create_id,
            )
        )


_WRITES = {
    keys.GEN: _generation,
    keys.CURSOR: _cursor,
    keys.PROGRESS: _progress,
    keys.SLOT: _slot,
    keys.WORKER: _worker,
    keys.LIVE: _live,
}
