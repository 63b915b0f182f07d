"""What sessions ask of the outside: begun at once, answered later by an event.

Store transactions are repeated until their outcome is known; ids are minted here, once per intent.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

from controller import events as ev
from controller import instructions as do
from controller.clock import Clock
from controller.counters import Counters
from controller.dead_letters import DeadLetters
from controller.ids import IdMint
from controller.session import Session
from controller.store_calls import StoreCalls
from controller.tasks import Tasks
from ownership.custody import watermark
from ownership.generations import claim, confirm_gone, hand_over
from ownership.kv import Database
from ownership.lives import close_live, get_live
from ownership.model import (
    Claimed,
    CommittedGeneration,
    LiveNotOpen,
    SourceMoved,
    StaleGeneration,
    UnknownLive,
)


class Outside:
    """Bounded work on behalf of single lives. Each call returns at once."""

    def __init__(
        self,
        db: Database,
        calls: StoreCalls,
        letters: DeadLetters,
        tasks: Tasks,
        clock: Clock,
        rng: Random,
        mint: IdMint,
        counters: Counters,
        at_once: int,
    ) -> None:
        self._db = db
        self._calls = calls
        self._letters = letters
        self._tasks = tasks
        self._clock = clock
        self._rng = rng
        self._mint = mint
        self._counters = counters
        self._places = asyncio.Semaphore(at_once)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._tasks.spawn(self._in_place(work), name)

    async def _in_place(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._places:
            await work()

    # -- what sessions ask

    def claim(self, session: Session, order: do.Claim) -> None:
        """Answers ClaimDone or ClaimRefused."""
        self._begin(lambda: self._claim(session, order.claim_id), f"claim {session.live_id}")

    async def _claim(self, session: Session, claim_id: str) -> None:
        live_id, generation = session.live_id, session.generation
        now_ms = self._clock.wall_ms()
        answer = await self._calls.insist(
            lambda: claim(self._db, live_id, generation, claim_id, now_ms), "claim"
        )
        match answer:
            case Claimed(live=live, cursor=cursor, checkpoint=checkpoint):
                session.partition = live.partition
                finished = await self._calls.insist(
                    lambda: watermark(self._db, live.partition), "watermark"
                )
                self._counters.claims += 1
                session.post(ev.ClaimDone(live.options, cursor, checkpoint, finished))
            case StaleGeneration(actual=actual):
                self._counters.claims_refused += 1
                session.post(ev.ClaimRefused(actual))

    def send_letter(self, session: Session, order: do.SendLetter) -> None:
        """Answers LetterSent."""
        self._begin(lambda: self._send_letter(session, order), f"dead letter of {session.live_id}")

    async def _send_letter(self, session: Session, order: do.SendLetter) -> None:
        await self._letters.send(
            session.partition, order.offset, order.reason, order.detail, order.key, order.value
        )
        session.post(ev.LetterSent(order.offset))

    def hand_over(self, session: Session, order: do.HandOver) -> None:
        """Answers HandOverDone or HandOverRefused."""
        self._begin(lambda: self._hand_over(session, order), f"hand over {session.live_id}")

    async def _hand_over(self, session: Session, order: do.HandOver) -> None:
        commit_id, now_ms = self._mint.new(), self._clock.wall_ms()
        draw = self._rng.getrandbits(32)
        answer = await self._calls.insist(
            lambda: hand_over(
                self._db,
                session.live_id,
                session.generation,
                order.target,
                replace(order.checkpoint, at_ms=now_ms),
                commit_id,
                now_ms,
                order.token,
                draw,
            ),
            "hand_over",
        )
        match answer:
            case CommittedGeneration(generation=successor):
                self._counters.moves_out += 1
                session.post(ev.HandOverDone(successor))
            case SourceMoved() | LiveNotOpen():
                session.post(ev.HandOverRefused(type(answer).__name__, lost=True))
            case _:
                self._counters.moves_refused += 1
                session.post(ev.HandOverRefused(type(answer).__name__, lost=False))

    def close_live(self, session: Session, order: do.CloseLive) -> None:
        """Answers CloseDone or OwnershipLost."""
        self._begin(lambda: self._close_live(session, order.reason), f"close {session.live_id}")

    async def _close_live(self, session: Session, reason: str) -> None:
        now_ms = self._clock.wall_ms()
        answer = await self._calls.insist(
            lambda: close_live(self._db, session.live_id, session.generation, reason, now_ms),
            "close_live",
        )
        if isinstance(answer, StaleGeneration | UnknownLive):
            session.post(ev.OwnershipLost("while closing"))
        else:
            session.post(ev.CloseDone())

    def confirm_gone(self, session: Session) -> None:
        """Answers GoneConfirmed."""
        self._begin(lambda: self._confirm_gone(session), f"confirm {session.live_id} gone")

    async def _confirm_gone(self, session: Session) -> None:
        live_id, generation = session.live_id, session.generation
        await self._calls.insist(
            lambda: confirm_gone(self._db, live_id, generation), "confirm_gone"
        )
        session.post(ev.GoneConfirmed())

    def check_refusal(self, session: Session) -> None:
        """Counts a refusal of a live's rightful owner, which should never be."""
        self._begin(lambda: self._check_refusal(session), f"check refusal of {session.live_id}")

    async def _check_refusal(self, session: Session) -> None:
        view = await self._calls.insist(lambda: get_live(self._db, session.live_id), "look")
        if view is not None and view.open and view.generation == session.generation:
            self._counters.falsely_refused += 1
