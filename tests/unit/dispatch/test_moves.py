"""A move is asked for: a slot is reserved, both workers are told, the owner stays who it is."""

from dispatch.lives import Opening
from dispatch.moves import AlreadyThere, MoveRequested, NoOwner
from ownership import keys
from ownership.kv import int64
from ownership.lives import get_live
from ownership.model import (
    AlreadyClosed,
    NoFreeSlot,
    UnknownLive,
    UnknownWorker,
    WorkerNotReady,
)
from ownership.standing import standing
from ownership.workers import set_draining
from schemas.options import LiveOptions
from tests.unit.dispatch.world import World


async def signal(world: World, worker_id: str) -> int:
    return int64(await world.db.read(lambda tr: tr.get(keys.signal(worker_id))))


async def test_a_slot_is_reserved_and_both_sides_wake(world: World) -> None:
    service = world.service()
    await world.worker("w1")
    await service.lives.create(Opening(LiveOptions(), "a"))
    await world.worker("w2")
    before = await signal(world, "w1"), await signal(world, "w2")
    asked = await service.mover.request_move("a", None)
    assert isinstance(asked, MoveRequested)
    assert (asked.source.worker_id, asked.target) == ("w1", "w2")
    (kept,) = (await standing(world.db, "w2")).reserved
    assert (kept.token, kept.live_id) == (asked.token, "a")
    assert await signal(world, "w1") > before[0]
    assert await signal(world, "w2") > before[1]
    view = await get_live(world.db, "a")
    assert view is not None
    assert view.generation == asked.source


async def test_refusals(world: World) -> None:
    service = world.service()
    mover = service.mover
    assert isinstance(await mover.request_move("a", None), UnknownLive)
    await world.worker("w1", 2)
    await service.lives.create(Opening(LiveOptions(), "a"))
    assert isinstance(await mover.request_move("a", None), NoFreeSlot)
    assert isinstance(await mover.request_move("a", "w1"), AlreadyThere)
    assert isinstance(await mover.request_move("a", "w9"), UnknownWorker)
    await world.worker("w2", 1)
    await set_draining(world.db, "w2")
    assert isinstance(await mover.request_move("a", "w2"), WorkerNotReady)
    await set_draining(world.db, "w2", draining=False)
    assert isinstance(await mover.request_move("a", "w2"), MoveRequested)
    assert isinstance(await mover.request_move("a", "w2"), NoFreeSlot)
    await service.lives.close("a", "api")
    assert isinstance(await mover.request_move("a", "w2"), AlreadyClosed)


async def test_nobody_can_hand_over_what_nobody_owns(world: World) -> None:
    """Not met by today's transactions, which keep a dead owner's generation as the guard."""
    service = world.service()
    await world.worker("w1")
    await service.lives.create(Opening(LiveOptions(), "a"))
    await world.db.run(lambda tr: tr.clear(keys.gen("a")))
    assert isinstance(await service.mover.request_move("a", None), NoOwner)
