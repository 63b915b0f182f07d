"""Nothing is left behind: by lives that come and go, by a worker that is killed, by a Ctrl-C."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.processes import alive, descendants, holdings, shared_memory_names
from tests.support.system import System, free_port, running_system
from tests.support.wait import until

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
LIVES = 20
SLACK = 3


async def speak_and_close(system: System, number: int) -> None:
    live_id = await system.create(options={"look": "clay"})
    async with system.events(live_id) as events:
        await system.say(live_id, f"Number {number}.", end_turn=True)
        await events.wait_for_kind("speak_ended")
    await system.close(live_id)


async def test_twenty_lives_leave_nothing(system: System) -> None:
    names = shared_memory_names()
    await speak_and_close(system, 0)
    before = holdings(system.worker_pid)
    for number in range(1, LIVES + 1):
        await speak_and_close(system, number)

    def settled() -> bool:
        after = holdings(system.worker_pid)
        return (
            after.descriptors <= before.descriptors + SLACK
            and after.sockets <= before.sockets + SLACK
            and after.threads <= before.threads + 1
            and after.children == before.children
        )

    await until(settled, what=f"a worker that holds what it held before ({before})")
    assert shared_memory_names() <= names


async def test_a_killed_worker_takes_its_stages_along(kafka_bootstrap: str) -> None:
    with running_system(kafka_bootstrap) as system:
        stages = descendants(system.worker_pid)
        assert len(stages) >= 4
        os.kill(system.worker_pid, signal.SIGKILL)
        await until(lambda: not alive(stages), what="the end of the stage processes")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_demo_ends_with_everything(number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "demo.log"
    with log.open("wb") as out:
        demo = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dhsched",
            "demo",
            "--no-browser",
            "--port",
            str(free_port()),
            stdout=out,
            stderr=out,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        await until(lambda: "viewer" in log.read_text(), timeout_s=90, what="the viewer's address")
        below = descendants(demo.pid)
        assert len(below) >= 7, "broker, dispatch, worker and four stages"
        demo.send_signal(number)
        async with asyncio.timeout(40):
            await demo.wait()
    await until(lambda: not alive(below), what="the end of all processes")
    assert [path for path in tmp_path.iterdir() if path.name.startswith("dhsched-")] == []
