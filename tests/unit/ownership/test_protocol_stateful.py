"""Random histories of the whole protocol, one call after the other, against the plain program.

Answers are sometimes lost, so that bodies run again after they were applied; the answer must be the
same as the first time. The invariants are checked at every committed version.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ownership.custody import dispose_unowned, raise_watermark
from ownership.generations import (
    claim,
    commit_generation,
    confirm_gone,
    free_reserved,
    hand_over,
    reserve,
)
from ownership.lives import close_live, create_live, get_live
from ownership.memory import Faults, MemoryDatabase
from ownership.model import CommitGeneration, Generation
from ownership.release import release
from ownership.retry import Retry
from ownership.workers import beat, list_workers, mark_dead, register_worker, set_draining
from tests.unit.ownership.checker import Checker
from tests.unit.ownership.reference import Reference
from tests.unit.ownership.world import CHECKPOINT, create, item, load, worker

LIVES = ("a", "b", "c")
NODES = ("n", "m")
live_ids = st.sampled_from(LIVES)
chances = st.sampled_from(["answered", "lost", "dropped"])
draws = st.integers(0, 2**32)


class Protocol(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.db = MemoryDatabase(rng=random.Random(1), retry=Retry(pause_s=0.0, pause_s_max=0.0))
        self.checker = Checker(self.db.store)
        self.reference = Reference()
        self.ids = 0
        self.incarnations: list[str] = ["nobody"]
        self.generations: list[tuple[str, Generation]] = [("a", Generation("nobody", 1))]

    def teardown(self) -> None:
        self.runner.run(self._compare())
        self.runner.close()

    def fresh_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def call(self, chance: str, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a call whose first answer is lost, or that is dropped first, or that just works."""
        if chance == "answered":
            return self.runner.run(make())
        self.db.faults = (
            Faults(unknown_applied=1) if chance == "lost" else Faults(unknown_dropped=1)
        )

        async def main() -> Any:
            task = asyncio.create_task(make())
            # The first attempt is decided two turns after it began.
            for _ in range(3):
                await asyncio.sleep(0)
            self.db.faults = None
            return await task

        return self.runner.run(main())

    def a_worker(self, draw: int) -> str:
        """Mostly one that is admitted something, sometimes an old or an unknown one."""
        ready = [name for name, known in self.reference.workers.items() if known.state == "ready"]
        if draw % 4 and ready:
            return ready[draw % len(ready)]
        return self.incarnations[-1 - draw % min(4, len(self.incarnations))]

    def a_generation(self, draw: int) -> tuple[str, Generation]:
        return self.generations[-1 - draw % min(6, len(self.generations))]

    def note(self, live_id: str) -> None:
        view = self.runner.run(get_live(self.db, live_id))
        if view is not None and view.generation is not None:
            self.generations.append((live_id, view.generation))

    @invariant()
    def nothing_is_broken(self) -> None:
        assert self.checker.broken == []

    @initialize()
    def some_workers(self) -> None:
        for node in NODES:
            self.register(node, 3, "answered")

    @precondition(lambda self: self.ids % 5 == 0)
    @rule(node=st.sampled_from(NODES), capacity=st.integers(1, 3), chance=chances)
    def register(self, node: str, capacity: int, chance: str) -> None:
        worker_id = f"{node}-{self.fresh_id()}"
        self.incarnations.append(worker_id)
        value = worker(worker_id, capacity, node)
        result = self.call(chance, lambda: register_worker(self.db, value))
        assert type(result).__name__ == self.reference.register(worker_id, node, capacity)

    @rule(draw=draws, chance=chances)
    def register_again(self, draw: int, chance: str) -> None:
        known = self.reference.workers.get(worker_id := self.a_worker(draw))
        if known is not None:
            value = worker(worker_id, known.capacity, known.node)
            result = self.call(chance, lambda: register_worker(self.db, value))
            expected = self.reference.register(worker_id, known.node, known.capacity)
            assert type(result).__name__ == expected

    @rule(draw=draws)
    def beat(self, draw: int) -> None:
        worker_id = self.a_worker(draw)
        result = self.call("answered", lambda: beat(self.db, worker_id, load(worker_id)))
        assert type(result).__name__ == self.reference.beat(worker_id)

    @rule(draw=draws, behind=st.integers(0, 1))
    def mark_dead(self, draw: int, behind: int) -> None:
        worker_id = self.a_worker(draw)
        known = self.reference.workers.get(worker_id)
        seen = 0 if known is None else known.beat - behind
        result = self.call("answered", lambda: mark_dead(self.db, worker_id, seen))
        assert type(result).__name__ == self.reference.mark_dead(worker_id, seen)

    @rule(draw=draws, draining=st.booleans(), chance=chances)
    def drain(self, draw: int, draining: bool, chance: str) -> None:
        worker_id = self.a_worker(draw)
        result = self.call(chance, lambda: set_draining(self.db, worker_id, draining=draining))
        assert type(result).__name__ == self.reference.drain(worker_id, draining)

    @rule(live_id=live_ids, draw=draws, chance=chances)
    def create(self, live_id: str, draw: int, chance: str) -> None:
        target, ids = self.a_worker(draw), self.fresh_id()
        request = create(live_id, target, create_id=ids, commit_id=ids, slot_draw=draw)
        result = self.call(chance, lambda: create_live(self.db, request))
        assert type(result).__name__ == self.reference.create(live_id, target)
        self.note(live_id)

    @rule(live_id=live_ids, outside=st.booleans(), draw=draws, chance=chances)
    def close(self, live_id: str, outside: bool, draw: int, chance: str) -> None:
        by = None if outside else self.a_generation(draw)[1]
        at_ms = 1000 + self.ids
        self.fresh_id()
        result = self.call(chance, lambda: close_live(self.db, live_id, by, "x", at_ms))
        mine = None if by is None else (by.worker_id, by.epoch)
        assert type(result).__name__ == self.reference.close(live_id, mine)

    @rule(
        live_id=live_ids,
        right=st.booleans(),
        draw=draws,
        token=st.sampled_from([None, "t", "u"]),
        checkpoint=st.booleans(),
        chance=chances,
    )
    def move(
        self,
        live_id: str,
        right: bool,
        draw: int,
        token: str | None,
        checkpoint: bool,
        chance: str,
    ) -> None:
        owner = self.reference.live(live_id).owner
        expected = Generation(*owner) if right and owner else self.a_generation(draw)[1]
        target, commit_id = self.a_worker(draw // 7), self.fresh_id()
        if token is not None and target in self.reference.workers:
            token = min(self.reference.workers[target].reserved, default=token)

        def make() -> Coroutine[Any, Any, Any]:
            if checkpoint:
                return hand_over(
                    self.db, live_id, expected, target, CHECKPOINT, commit_id, 9, token, draw
                )
            request = CommitGeneration(live_id, expected, target, commit_id, 9, draw, token)
            return commit_generation(self.db, request)

        result = self.call(chance, make)
        wanted = (expected.worker_id, expected.epoch)
        assert type(result).__name__ == self.reference.commit(live_id, wanted, target, token)
        self.note(live_id)

    @rule(draw=draws, chance=chances)
    def claim(self, draw: int, chance: str) -> None:
        live_id, generation = self.a_generation(draw)
        claim_id = self.fresh_id()
        result = self.call(chance, lambda: claim(self.db, live_id, generation, claim_id, 9))
        mine = (generation.worker_id, generation.epoch)
        assert type(result).__name__ == self.reference.claim(live_id, mine)

    @rule(draw=draws, token=st.sampled_from(["t", "u"]), chance=chances)
    def reserve(self, draw: int, token: str, chance: str) -> None:
        target = self.a_worker(draw)
        result = self.call(chance, lambda: reserve(self.db, target, token, 9, slot_draw=draw))
        assert type(result).__name__ == self.reference.reserve(target, token)

    @rule(draw=draws, token=st.sampled_from(["t", "u"]))
    def free_reserved(self, draw: int, token: str) -> None:
        worker_id = self.a_worker(draw)
        result = self.call("answered", lambda: free_reserved(self.db, worker_id, token))
        assert result == self.reference.free_reserved(worker_id, token)

    @rule(draw=draws)
    def confirm_gone(self, draw: int) -> None:
        live_id, old = self.a_generation(draw)
        result = self.call("answered", lambda: confirm_gone(self.db, live_id, old))
        assert result == self.reference.confirm_gone(live_id, (old.worker_id, old.epoch))

    @rule(
        picks=st.lists(st.tuples(live_ids, st.integers(-1, 1), draws), min_size=1, max_size=3),
        chance=chances,
    )
    def release(self, picks: list[tuple[str, int, int]], chance: str) -> None:
        items = []
        for live_id, shift, draw in {pick[0]: pick for pick in picks}.values():
            live = self.reference.live(live_id)
            right = draw % 4 and live.owner
            generation = Generation(*live.owner) if right else self.a_generation(draw // 4)[1]
            at = max(0, (live.cursor or 0) + (shift if draw % 3 == 0 else 0))
            name = f"{generation.worker_id}/{generation.epoch}/{self.fresh_id()}"
            items.append(item(live_id, generation, at, at + draw % 3, name))
        results = self.call(chance, lambda: release(self.db, items))
        for asked, result in zip(items, results, strict=True):
            mine = (asked.generation.worker_id, asked.generation.epoch)
            expected = self.reference.release(
                asked.live_id, mine, asked.expected_next_offset, asked.new_next_offset
            )
            assert type(result).__name__ == expected

    @rule(live_id=live_ids, ahead=st.integers(-1, 3), chance=chances)
    def dispose(self, live_id: str, ahead: int, chance: str) -> None:
        # The offset belongs to one record of one live: three lives share the partition in turn.
        base = max(self.reference.mark, self.reference.live(live_id).cursor or 0)
        offset = max(0, base + ahead) * 3 + LIVES.index(live_id)
        result = self.call(chance, lambda: dispose_unowned(self.db, live_id, 0, offset))
        assert type(result).__name__ == self.reference.dispose(live_id, offset)

    @rule(by=st.integers(-1, 4), lettered=st.sampled_from((0, 2, 99)), chance=chances)
    def raise_watermark(self, by: int, lettered: int, chance: str) -> None:
        offset = max(0, self.reference.mark + by)
        known = range(self.reference.mark + lettered)
        result = self.call(chance, lambda: raise_watermark(self.db, 0, offset, known))
        assert result == self.reference.raise_watermark(offset, known)

    async def _compare(self) -> None:
        for live_id, live in self.reference.lives.items():
            view = await get_live(self.db, live_id)
            if view is None:
                assert live.epoch == 0
                continue
            owner = view.generation and (view.generation.worker_id, view.generation.epoch)
            assert (owner, view.open) == (live.owner, live.open)
            assert view.cursor is not None
            assert view.cursor.next_offset == live.cursor
        views = {view.value.worker_id: view for view in await list_workers(self.db)}
        assert views.keys() == self.reference.workers.keys()
        for worker_id, known in self.reference.workers.items():
            view = views[worker_id]
            assert (view.value.state, view.beat) == (known.state, known.beat)
            assert (view.held, view.leaving, view.reserved) == (
                len(known.held),
                len(known.leaving),
                len(known.reserved),
            )


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
