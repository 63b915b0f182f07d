"""Plays the steps of one live to a controller, at their times, and waits until all is spoken."""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, TypeAlias

from controller.session_machine import SessionMachine
from controller.session_states import State
from dhsched.offline.controllers import (
    Controller,
    Mover,
    ReplayFailed,
    settle,
    start_controller,
)
from dhsched.offline.film import Film
from dhsched.offline.lockstep import LoadedStages
from dhsched.offline.replay_media import MediaLine
from dhsched.offline.schedule import CloseNow, Deliver, LiveSummary, MoveOn, Step
from dhsched.offline.virtual_time import VirtualClock, VirtualTimeLoop
from ownership.lives import close_live, create_live, get_live
from ownership.memory import MemoryDatabase
from ownership.memory_store import MemoryStore
from ownership.model import Created, CreateLive
from schemas.events import EventKind, LiveEvent
from schemas.media import TICK_MS
from schemas.options import LiveOptions
from schemas.partition import partition_of
from schemas.topics import DEAD_LETTER_TOPIC, EVENTS_TOPIC, TEXT_TOPIC
from stream.memory import MemoryBroker
from stream.memory_broker import Log
from stream.transport import KafkaRecord, TopicSpec

Timing: TypeAlias = Literal["recorded", "asap"]

WARM_UP_MS: Final = 2_000
"""Of virtual time, until the controllers have divided the partitions among themselves."""
TAIL_MS: Final = 1_000
"""How long the film goes on after the last word."""
QUIET_MS: Final = 200
"""How long a live has to have nothing to say before the next step comes at once (`asap`)."""
LOG_RECORDS_MAX: Final = 4_096
"""Above so many records of a partition in memory, those that are spoken are forgotten."""
STUCK_MS: Final = 600_000
"""A live that has something to say, and says nothing of it for so long, never will."""


@dataclass(frozen=True, slots=True)
class Play:
    """What is to be played, and how. `partitions`: the topic's."""

    live: LiveSummary
    options: LiveOptions
    partitions: int
    timing: Timing
    moves: bool


@dataclass(slots=True)
class Played:
    """How it went."""

    frames: int = 0
    records: int = 0
    moves: int = 0
    dead_letters: int = 0
    errors: int = 0
    closed: str = ""


class Player:
    """One replay. `on_progress(virtual_ms, of_ms)` is told now and then."""

    def __init__(
        self,
        play: Play,
        film: Film,
        loop: VirtualTimeLoop,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._play = play
        self._film = film
        self._loop = loop
        self._on_progress = on_progress
        self._live_id = play.live.live_id
        self._zero_ms = max(play.live.begins_ms, WARM_UP_MS)
        """The time of day at which the film begins; recordings of a text begin at no time at all,
        and no clock shows less than nothing."""
        self._clock = VirtualClock(loop, self._zero_ms - WARM_UP_MS)
        self._store = MemoryStore()
        self._broker = MemoryBroker()
        self._db = MemoryDatabase(self._store, Random(0))
        self._partition = partition_of(self._live_id.encode(), play.partitions)
        self._controllers: list[Controller] = []
        self._played = Played()
        self._skipped_ms = 0
        """Of pauses, left out so far."""
        self._told_ms = 0

    async def run(self, steps: Iterable[Step], loaded: list[LoadedStages]) -> Played:
        """All of it, on one controller for each of `loaded`. Raises ReplayFailed, and what the
        film raises."""
        for topic, partitions in (
            (TEXT_TOPIC, self._play.partitions),
            (EVENTS_TOPIC, 1),
            (DEAD_LETTER_TOPIC, 1),
        ):
            self._broker.make_topic(TopicSpec(topic, partitions))
        options = self._play.options
        side_px_max = max(options.width_px, options.height_px)
        line = MediaLine()
        for at, stages in enumerate(loaded):
            self._controllers.append(
                start_controller(
                    f"controller-{at}",
                    self._store,
                    self._broker,
                    self._clock,
                    stages,
                    self._film,
                    line,
                    side_px_max,
                )
            )
        self._loop.set_on_quiet(self._pump)
        try:
            await asyncio.sleep(WARM_UP_MS / 1000)
            self._mover = Mover(self._db, self._clock, self._live_id, self._controllers)
            await self._open()
            for step in steps:
                if not await self._take(step):
                    break
            await self._until_spoken()
        finally:
            self._loop.set_on_quiet(None)
            await self._end()
        self._note_events()
        self._played.frames = self._film.next_frame
        return self._played

    def _pump(self) -> bool:
        return any([one.runtime.pump() for one in self._controllers])

    async def _end(self) -> None:
        for one in self._controllers:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in self._controllers), return_exceptions=True)
        for one in self._controllers:
            await one.transport.close()
        await self._db.close()

    async def _open(self) -> None:
        all_of_them = self._controllers
        await settle(lambda: all(c.worker.ready for c in all_of_them), "the start", all_of_them)
        request = CreateLive(
            live_id=self._live_id,
            options=self._play.options,
            partition=self._partition,
            target=self._controllers[0].worker_id,
            commit_id="open",
            create_id="open",
            now_ms=self._clock.wall_ms(),
        )
        answer = await create_live(self._db, request)
        if not isinstance(answer, Created):
            raise ReplayFailed(f"the live could not be opened: {answer}")
        await settle(lambda: self._running() is not None, "the opening", all_of_them)

    # -- steps

    async def _take(self, step: Step) -> bool:
        """At its time; False when the live is closed and takes no more."""
        if not await self._until(step.at_ms):
            return False
        match step:
            case Deliver(record=record):
                self._append(record.topic, record.partition, step)
            case MoveOn(generation=generation, handed_over=handed_over):
                if len(self._controllers) > 1:
                    await self._until_released(generation.next_offset)
                    await self._mover.move(handed_over=handed_over)
                    self._played.moves += 1
            case CloseNow(reason=reason):
                await close_live(self._db, self._live_id, None, reason, self._clock.wall_ms())
                self._played.closed = reason
                return False
        return True

    def _append(self, _topic: str, partition: int, step: Deliver) -> None:
        """Under its own offset: records of other lives that lay between are gaps here."""
        record = step.record
        log = self._broker.log(TEXT_TOPIC, partition)
        if record.offset > log.end:
            self._broker.leave_gap(TEXT_TOPIC, partition, record.offset - log.end)
        self._broker.append(TEXT_TOPIC, partition, record.key, record.value, record.headers)
        self._played.records += 1
        self._let_go(log, partition)

    def _let_go(self, log: Log, partition: int) -> None:
        """Forget what is spoken, so that a capture of any length can be played."""
        if len(log.records) < LOG_RECORDS_MAX:
            return
        machine = self._machine()
        bounds = () if machine is None else machine.speech.bounds
        if machine is None or machine.queue is None:
            return
        keep = min([machine.queue.cursor - 1, *(one.start_offset for one in bounds)])
        self._broker.cut_log(TEXT_TOPIC, partition, max(keep, log.start))

    async def _until(self, at_ms: int) -> bool:
        """The step's time, at which nobody waits longer than they must when it is `asap`."""
        quiet_ms = 0
        at_ms += self._zero_ms - self._play.live.begins_ms
        while (left_ms := at_ms - self._skipped_ms - self._clock.wall_ms()) > 0:
            if await self._is_closed():
                return False
            if self._play.timing == "recorded":
                await self._pass(min(left_ms, 1_000))
                continue
            if quiet_ms >= QUIET_MS:
                self._skipped_ms += left_ms
                break
            step_ms = min(left_ms, TICK_MS)
            await self._pass(step_ms)
            quiet_ms = quiet_ms + step_ms if self._has_nothing_to_say() else 0
        return not await self._is_closed()

    async def _pass(self, ms: int) -> None:
        """Let virtual time go by."""
        await asyncio.sleep(ms / 1000)
        for one in self._controllers:
            one.check()
        self._note_events()
        now_ms = self._clock.now_ms() - WARM_UP_MS
        if now_ms - self._told_ms >= 1_000:
            self._told_ms = now_ms
            live = self._play.live
            self._on_progress(now_ms + self._skipped_ms, live.last_ms - live.begins_ms + TAIL_MS)

    async def _until_released(self, next_offset: int) -> None:
        """Until the cursor is where the recorded owner found it, as far as it comes by itself."""
        for _ in range(STUCK_MS // TICK_MS):
            machine = self._machine()
            if machine is None or machine.queue is None:
                return
            if machine.queue.cursor >= next_offset or self._has_nothing_to_say():
                return
            await self._pass(1)

    async def _until_spoken(self) -> None:
        """Until it is closed, or there was nothing to say for a while. Raises ReplayFailed."""
        quiet_ms = 0
        moved = (-1, self._clock.now_ms())
        while quiet_ms < TAIL_MS and not await self._is_closed():
            await self._pass(TICK_MS)
            quiet = self._has_nothing_to_say()
            quiet_ms = quiet_ms + TICK_MS if quiet else 0
            position = self._position()
            if quiet or position != moved[0]:
                moved = (position, self._clock.now_ms())
            elif self._clock.now_ms() - moved[1] > STUCK_MS:
                raise ReplayFailed(f"it stopped speaking before the end: {self._told()}")

    # -- what the controllers say

    def _machine(self) -> SessionMachine | None:
        session = self._mover.session
        return None if session is None else session.machine

    def _running(self) -> SessionMachine | None:
        machine = self._machine()
        return machine if machine is not None and machine.state is State.IDLE else None

    def _has_nothing_to_say(self) -> bool:
        machine = self._running()
        return machine is not None and machine.queue is not None and machine.queue.empty

    def _position(self) -> int:
        machine = self._machine()
        return -1 if machine is None else hash((machine.speech.bounds, machine.speech.emitted))

    def _told(self) -> str:
        machine = self._machine()
        return "nobody owns it" if machine is None else "; ".join(machine.story.lines()[-5:])

    async def _is_closed(self) -> bool:
        view = await get_live(self._db, self._live_id)
        return view is None or not view.open

    def _note_events(self) -> None:
        """Into the file, and out of memory."""
        log = self._broker.log(EVENTS_TOPIC, 0)
        for record in log.read(log.start, len(log.records)):
            self._note_event(record)
        log.cut_before(log.end)
        letters = self._broker.log(DEAD_LETTER_TOPIC, 0)
        self._played.dead_letters += len(letters.records)
        letters.cut_before(letters.end)

    def _note_event(self, record: KafkaRecord) -> None:
        event = LiveEvent.decode(record.value)
        self._played.errors += event.kind is EventKind.ERROR
        if event.kind is EventKind.STATE_UPDATED and event.data.get("state") == "closed":
            self._played.closed = str(event.data.get("reason") or "closed")
        line = event.as_dict()
        line["film_ms"] = event.at_ms - self._zero_ms
        self._film.event(json.dumps(line, ensure_ascii=False, default=dict))
