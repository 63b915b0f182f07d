"""Stage processes that start, die, hang, fail to load and refuse to go, all of them real ones."""

import asyncio
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from gpu_stages.control import Plan, SegmentNotMade
from gpu_stages.header import Header, MessageKind
from gpu_stages.host_ring import HostConsumer, HostProducer, HostRing
from gpu_stages.live_table import LiveRow, LiveTableWriter, create_table
from gpu_stages.memory import create_bell
from gpu_stages.ring import RingSpec
from gpu_stages.supervisor import (
    StageFailedToStart,
    StageProcess,
    StageState,
    Supervisor,
    SupervisorLimits,
)
from tests.support.processes import alive, holdings, shared_memory_names
from tests.support.wait import until

KIT = Path(__file__).with_name("stage_kit.py")
QUICK = SupervisorLimits(
    ping_s=0.05, hung_s=10, abort_s=5, backoff_s_min=0.01, backoff_s_max=0.02, stop_s=5
)
SLOTS = 4
ROW = LiveRow(0, 1, 5, 0, 0, -1, 0, 0, 0, 0, 64, 64, 1.0, 0)


class World:
    """One stage between two rings, in the place of the runtime."""

    def __init__(self, settings: Mapping[str, object] | None = None, **plan: object) -> None:
        self.rings = [HostRing("in", RingSpec(SLOTS, 1024)), HostRing("out", RingSpec(2, 1024))]
        self.table_fd = create_table(1)
        self.bell_fd = create_bell()
        self.table = LiveTableWriter(self.table_fd)
        self.source = HostProducer(self.rings[0].handle)
        self.sink = HostConsumer(self.rings[1].handle)
        self.events: list[tuple[str, str]] = []
        self.failed: list[SegmentNotMade] = []
        self.progress: list[tuple[str, StageState]] = []
        self.ready_s_max = 20.0
        fields: dict[str, object] = {
            "stage": "speech",
            "class_path": f"{KIT}:KitSpeech",
            "device": "cpu",
            "settings": dict(settings or {}),
            "batch_max": 1,
            "wait_us_max": None,
            "threads": 1,
            "nice": 0,
            "parent_pid": os.getpid(),
            "table_fd": self.table_fd,
            "bell_fd": self.bell_fd,
            "incoming": self.rings[0].as_json(),
            "outgoing": self.rings[1].as_json(),
            **plan,
        }
        self.plan = Plan(**fields)  # type: ignore[arg-type]
        self.table.write(ROW)
        self.table.bindings_changed()

    def supervisor(self, limits: SupervisorLimits = QUICK) -> Supervisor:
        fds = (*self.rings[0].handle.fds(), *self.rings[1].handle.fds())
        process = StageProcess(self.plan, (*fds, self.table_fd, self.bell_fd), self.ready_s_max)
        return Supervisor([process], self, limits, self.on_progress)

    def on_progress(self, stage: str, state: StageState, since_s: float) -> None:
        assert since_s >= 0
        self.progress.append((stage, state))

    def on_lost(self, stage: str, reason: str) -> None:
        self.events.append(("lost", reason))
        for ring in self.rings:
            ring.reset()
        self.sink.take()

    def on_gave_up(self, stage: str, reason: str) -> None:
        self.events.append(("gave up", reason))

    def on_segment_not_made(self, failed: SegmentNotMade) -> None:
        self.failed.append(failed)

    def send(self, text: str, segment_id: int = 1) -> None:
        header = Header(MessageKind.SEGMENT_TEXT, 0, 1, 5, segment_id=segment_id)
        self.source.publish(header, [text.encode()])

    async def receive(self) -> str:
        taken = await until(self.sink.take, what="a message from the stage")
        assert not isinstance(taken, bool)
        text = bytes(taken.parts[0]).decode()
        self.sink.release(taken)
        return text

    def close(self) -> None:
        self.source.close()
        self.sink.close()
        self.table.close()
        for ring in self.rings:
            ring.close()
        os.close(self.table_fd)
        os.close(self.bell_fd)


Start = Callable[..., Awaitable[tuple[World, Supervisor]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    made: list[tuple[World, Supervisor]] = []

    async def started(
        settings: Mapping[str, object] | None = None,
        limits: SupervisorLimits = QUICK,
        **plan: object,
    ) -> tuple[World, Supervisor]:
        world = World(settings, **plan)
        supervisor = world.supervisor(limits)
        made.append((world, supervisor))
        await supervisor.start()
        return world, supervisor

    yield started
    for world, supervisor in made:
        await supervisor.close()
        world.close()


async def test_a_stage_gets_ready_works_and_says_how_it_is(start: Start) -> None:
    world, supervisor = await start({"prefix": "> "})
    assert supervisor.state("speech") is StageState.READY
    *loading, last = world.progress  # told again each second while it loads
    assert set(loading) == {("speech", StageState.STARTING)}
    assert last == ("speech", StageState.READY)
    assert not supervisor.wants_ticks("speech")
    world.send("hello")
    assert await world.receive() == "> hello"
    await until(lambda: supervisor.stats()["speech"].get("messages") == 1, what="its figures")
    dump = await supervisor.dump("speech")
    assert dump["bindings"] == {"0": 1}


async def test_a_state_dump_on_sigusr1_and_stacks_on_sigusr2(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gpu_stages")
    _, supervisor = await start()
    os.kill(supervisor.pids()["speech"], signal.SIGUSR1)
    await until(lambda: '"bindings"' in caplog.text, what="the state in the log")
    os.kill(supervisor.pids()["speech"], signal.SIGUSR2)
    await until(lambda: "most recent call first" in caplog.text, what="the stacks in the log")


async def test_ctrl_c_is_the_parent_s_business(start: Start) -> None:
    world, supervisor = await start()
    os.kill(supervisor.pids()["speech"], signal.SIGINT)
    world.send("still here")
    assert await world.receive() == "still here"
    assert world.events == []


async def test_thread_counts_are_set_before_anything_is_loaded(start: Start) -> None:
    _, supervisor = await start(threads=3)
    environment = Path(f"/proc/{supervisor.pids()['speech']}/environ").read_bytes().split(b"\0")
    assert {b"OMP_NUM_THREADS=3", b"MKL_NUM_THREADS=3"} <= set(environment)


@pytest.mark.parametrize(
    ("settings", "plan", "words"),
    [
        ({"fail_load": True}, {}, ["FileNotFoundError", "model.bin", "the model file is missing"]),
        ({}, {"class_path": "no_such:Stage"}, ["no_such"]),
        ({}, {"class_path": f"{KIT}:NotAStage"}, ["not a class derived from Stage"]),
    ],
)
async def test_a_stage_that_cannot_load_says_why_at_once(
    settings: dict[str, object], plan: dict[str, object], words: list[str]
) -> None:
    world = World(settings, **plan)
    supervisor = world.supervisor()
    try:
        with pytest.raises(StageFailedToStart) as refused:
            await supervisor.start()
        assert refused.value.stage == "speech"
        for word in words:
            assert word in str(refused.value)
        assert supervisor.pids() == {}
        assert world.events == []
    finally:
        world.close()


async def test_a_stage_that_loads_for_ever_is_not_waited_for() -> None:
    world = World({"slow_load": True})
    world.ready_s_max = 0.5
    supervisor = world.supervisor()
    try:
        with pytest.raises(StageFailedToStart, match=r"not ready within 0\.5 s"):
            await supervisor.start()
    finally:
        world.close()


async def test_a_killed_stage_is_back_and_works(start: Start) -> None:
    world, supervisor = await start()
    first = supervisor.pids()["speech"]
    os.kill(first, signal.SIGKILL)
    await until(lambda: world.events, what="the loss")
    assert world.events == [("lost", "killed by SIGKILL")]
    await until(lambda: supervisor.state("speech") is StageState.READY, what="the restart")
    assert supervisor.pids()["speech"] != first
    assert supervisor.stats()["speech"]["restarts"] == 1
    world.send("again")
    assert await world.receive() == "again"


async def test_what_is_fed_while_a_stage_restarts_waits_for_it(start: Start) -> None:
    world, supervisor = await start()
    os.kill(supervisor.pids()["speech"], signal.SIGKILL)
    await until(lambda: world.events, what="the loss")
    await until(world.source.room, what="room")
    world.send("in the meantime")
    assert await world.receive() == "in the meantime"


async def test_a_stage_that_dies_too_often_is_given_up_with_its_last_words(start: Start) -> None:
    limits = SupervisorLimits(ping_s=0.05, restarts_max=2, backoff_s_min=0.01, backoff_s_max=0.02)
    world, supervisor = await start(limits=limits)
    for losses in range(1, 4):
        await until(world.source.room, what="room")
        world.send("die")
        await until(lambda n=losses: len(world.events) >= n, what="a loss")
    await until(lambda: world.events[-1][0] == "gave up", what="the end")
    assert [kind for kind, _ in world.events] == ["lost"] * 3 + ["gave up"]
    assert "exit status 9" in world.events[-1][1]
    assert "about to die" in world.events[-1][1]
    assert supervisor.state("speech") is StageState.GAVE_UP
    assert supervisor.pids() == {}


async def test_a_stage_that_hangs_is_ended_and_says_where(start: Start) -> None:
    limits = SupervisorLimits(ping_s=0.05, hung_s=1, abort_s=5, backoff_s_min=0.01)
    world, supervisor = await start(limits=limits)
    world.send("hang")
    await until(lambda: world.events, what="the loss")
    reason = world.events[0][1]
    assert "no answer for 1 s" in reason
    assert "misbehave" in reason, "the stack of the hang"
    await until(lambda: supervisor.state("speech") is StageState.READY, what="the restart")


async def test_a_pause_of_the_worker_itself_is_not_held_against_the_stage(start: Start) -> None:
    limits = SupervisorLimits(ping_s=0.05, hung_s=0.3)
    world, supervisor = await start(limits=limits)
    pid = supervisor.pids()["speech"]
    for _ in range(3):
        await asyncio.sleep(0)
        threading.Event().wait(0.5)  # the whole loop stands still, as under SIGSTOP
    world.send("still here")
    assert await world.receive() == "still here"
    assert world.events == []
    assert supervisor.pids()["speech"] == pid


async def test_a_failed_segment_is_told_and_the_stage_goes_on(start: Start) -> None:
    world, _ = await start()
    world.send("boom", segment_id=41)
    world.send("unspeakable", segment_id=42)
    world.send("fine", segment_id=43)
    assert await world.receive() == "fine"
    await until(lambda: len(world.failed) == 2, what="the failures")
    assert [failed.segment_id for failed in world.failed] == [41, 42]
    assert "this text cannot be spoken" in world.failed[0].reason
    assert world.failed[1].reason == "no such word"
    assert world.events == []


async def test_a_stage_that_only_fails_is_started_anew(start: Start) -> None:
    world, _ = await start()
    for _ in range(8):
        await until(world.source.room, what="room")
        world.send("boom")
    await until(lambda: world.events, what="the loss")
    assert "exit status 4" in world.events[0][1]
    assert "this text cannot be spoken" in world.events[0][1]


async def test_a_stubborn_stage_is_gone_after_close() -> None:
    world = World({"stubborn": True})
    supervisor = world.supervisor(SupervisorLimits(ping_s=9, stop_s=0.2, terminate_s=0.2))
    await supervisor.start()
    pid = supervisor.pids()["speech"]
    world.send("hang")
    await until(world.source.room, what="the stage to take it")
    await supervisor.close()
    assert not alive({pid})
    world.close()


async def test_the_stage_goes_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio\n"
        "from tests.unit.gpu_stages.test_supervisor import World\n"
        "async def main():\n"
        "    supervisor = World().supervisor()\n"
        "    await supervisor.start()\n"
        "    print(supervisor.pids()['speech'], flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    names = shared_memory_names()
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(KIT.parents[3])},
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert alive({pid})
    parent.kill()
    await parent.wait()
    await until(lambda: not alive({pid}), what="the stage's end")
    assert shared_memory_names() == names


async def test_a_hundred_restarts_leave_nothing_behind(start: Start) -> None:
    limits = SupervisorLimits(ping_s=5, restarts_max=1000, backoff_s_min=0, backoff_s_max=0)
    world, supervisor = await start(limits=limits)
    gc.collect()
    names = shared_memory_names()

    async def restart() -> None:
        """Killed with slots in hand on both sides, which come back with the new generation."""
        before = supervisor.stats()["speech"]["restarts"]
        await until(lambda: world.source.room() == SLOTS, what="every slot")
        while world.source.room():
            world.send("never heard")
        os.kill(supervisor.pids()["speech"], signal.SIGKILL)
        await until(
            lambda: (
                supervisor.stats()["speech"]["restarts"] > before
                and supervisor.state("speech") is StageState.READY
            ),
            what="a restart",
        )

    for _ in range(10):
        await restart()
    settled = holdings(os.getpid())
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(90):
        await restart()
    now = holdings(os.getpid())
    assert (now.descriptors, now.threads) == (settled.descriptors, settled.threads)
    assert len(now.children) == len(settled.children)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb
    assert grown_kb < 2048
    left = {name for name in shared_memory_names() - names if not name.startswith("sem.mp-")}
    assert not left, "semaphores of other programs' multiprocessing come and go"
    await until(lambda: world.source.room() == SLOTS, what="every slot")
    world.send("the hundred and first")
    assert await world.receive() == "the hundred and first"


async def test_close_leaves_no_descriptor_thread_or_process() -> None:
    before = holdings(os.getpid())
    world = World()
    supervisor = world.supervisor()
    await supervisor.start()
    await supervisor.close()
    await supervisor.close()
    assert supervisor.state("speech") is StageState.CLOSED
    world.close()
    gc.collect()
    assert holdings(os.getpid()) == before
