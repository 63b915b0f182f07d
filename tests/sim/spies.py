"""Observers at the calls where intents meet the store: who asks, in whose name, under which id.

They change nothing. With real processes the same entries come from a log line at these calls.
"""

from collections.abc import Sequence
from typing import Any

import controller.outside
import controller.release
import dispatch.recovery
from ownership import keys
from ownership.generations import commit_generation, hand_over
from ownership.memory_transaction import MemoryTransaction
from ownership.model import CommitGeneration, Released, ReleaseItem, Stale
from ownership.release import release
from tests.sim import history as h
from tests.sim.recorder import Recorder, process_name

SLOW_MS = 8
TOLD = frozenset({"before_log_start", "text_lost"})

RECORDER: Recorder | None = None
"""Of the run that is under way."""


def is_release(tr: MemoryTransaction) -> bool:
    """Whether a transaction moved a cursor or wrote a checkpoint, and gave nobody anything."""
    writes = tr.writes
    return any(key.startswith(keys.CURSOR) for key in writes) and not any(
        key.startswith(keys.GEN) for key in writes
    )


async def spied_release(db: Any, items: Sequence[ReleaseItem]) -> Any:
    rec, name = RECORDER, process_name()
    assert rec is not None
    now = rec.now_ms
    for item in items:
        generation = item.generation
        rec.note(
            h.ReleaseAsked(
                now, name, item.live_id, generation.worker_id, generation.epoch, item.release_id
            )
        )
        if rec.owner.get(item.live_id) != (generation.worker_id, generation.epoch):
            rec.windows["release_asked_while_superseded"] += 1
    try:
        results = await release(db, items)
    finally:
        if rec.now_ms - now > SLOW_MS:
            rec.note(h.ReleaseSlow(rec.now_ms, name, now))
    for result in results:
        if not isinstance(result, Released):
            item = result.item
            generation = item.generation
            rec.note(
                h.ReleaseRefused(
                    rec.now_ms,
                    name,
                    item.live_id,
                    generation.worker_id,
                    generation.epoch,
                    item.release_id,
                    "stale" if isinstance(result, Stale) else "cursor_moved",
                )
            )
    return results


def _note_move(live_id: str, worker_id: str, epoch: int, target: str, commit_id: str) -> None:
    rec = RECORDER
    assert rec is not None
    rec.note(h.MoveAsked(rec.now_ms, process_name(), live_id, worker_id, epoch, target, commit_id))


async def spied_commit_generation(db: Any, request: CommitGeneration) -> Any:
    expected = request.expected
    assert expected is not None
    _note_move(
        request.live_id, expected.worker_id, expected.epoch, request.target, request.commit_id
    )
    return await commit_generation(db, request)


async def spied_hand_over(
    db: Any, live_id: str, me: Any, target: str, checkpoint: Any, commit_id: str, *rest: Any
) -> Any:
    _note_move(live_id, me.worker_id, me.epoch, target, commit_id)
    return await hand_over(db, live_id, me, target, checkpoint, commit_id, *rest)


def note_error(session: Any, reason: Any) -> None:
    """An owner tells that text is lost."""
    rec = RECORDER
    if rec is not None and reason in TOLD:
        epoch = session.generation.epoch
        rec.note(h.ErrorTold(rec.now_ms, process_name(), session.live_id, epoch, reason))


def install() -> None:
    """Once per interpreter."""
    controller.release.release = spied_release  # type: ignore[assignment]
    controller.outside.hand_over = spied_hand_over  # type: ignore[assignment]
    dispatch.recovery.commit_generation = spied_commit_generation  # type: ignore[assignment]
