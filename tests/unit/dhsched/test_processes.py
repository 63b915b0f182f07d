"""Children are ended together, and tell why they ended by themselves."""

from pathlib import Path

import pytest

from dhsched.output import CommandFailed
from dhsched.processes import Children
from tests.support.processes import alive
from tests.support.wait import until


async def test_a_child_that_ends_by_itself_shows_its_log(tmp_path: Path) -> None:
    children = Children(tmp_path)
    child = await children.start("wrong", ("no-such-command",))
    assert (await children.first_to_end()) is child
    with pytest.raises(
        CommandFailed, match=r"(?s)the wrong ended with status 2.*no-such-command"
    ) as told:
        children.raise_if_ended()
    assert str(child.log_path) in str(told.value)
    await children.stop()


async def test_stop_ends_running_children(tmp_path: Path) -> None:
    children = Children(tmp_path)
    store = f"lmdb://{tmp_path}/store"
    flags = ("--kafka", "127.0.0.1:1", "--store", store, "--port", "0")
    child = await children.start("dispatch", ("dispatch", *flags))
    await children.stop()
    await until(lambda: not alive({child.process.pid}), what="the end of the child")
