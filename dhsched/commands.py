"""The short commands: ask a Dispatch replica or write to the topic, print the answer, end."""

import sys
from typing import Any, cast

from dhsched.client import DispatchClient
from dhsched.output import CommandFailed, Output
from dhsched.text_source import records
from dhsched.topic_writer import TopicWriter
from schemas.live_id import BadLiveId, check_live_id
from schemas.text_record import RecordKind


async def push_text(live: str, text: str, kind: str, kafka: str, output: Output) -> None:
    """Produce TEXT records (cut where they are long), or one record of another kind."""
    if not kafka:
        raise CommandFailed("name the brokers with --kafka or DHSCHED_KAFKA", 2)
    try:
        check_live_id(live)
    except BadLiveId as error:
        raise CommandFailed(str(error), 2) from error
    if text == "-":
        text = sys.stdin.read()
    record_kind = RecordKind[kind.upper()]
    if record_kind is RecordKind.TEXT and not text.strip():
        raise CommandFailed("there is no text to speak", 2)
    if record_kind is not RecordKind.TEXT and text.strip():
        raise CommandFailed(f"a record of kind {kind} carries no text", 2)
    pieces = list(records(text)) if record_kind is RecordKind.TEXT else [""]
    async with TopicWriter.to(kafka) as writer:
        sent = [await writer.write(live, record_kind, piece) for piece in pieces]
    last = sent[-1]
    output.result(
        {"live_id": live, "partition": last.partition, "offset": last.offset, "records": len(sent)},
        f"{len(sent)} record(s) for live {live}, the last at partition {last.partition} "
        f"offset {last.offset}",
    )


async def list_lives(dispatch: str, output: Output) -> None:
    """Every live the store knows, page by page."""
    rows: list[dict[str, Any]] = []
    async with DispatchClient(dispatch) as client:
        after = ""
        while True:
            page = await client.get("/v1/lives", **({"after": after} if after else {}))
            rows += [_live_row(live) for live in cast("list[dict[str, Any]]", page["lives"])]
            after = cast("str", page.get("next") or "")
            if not after:
                break
    columns = ("live", "state", "worker", "epoch", "partition", "cursor")
    output.table("lives", columns, rows, "no lives")


def _live_row(live: dict[str, Any]) -> dict[str, Any]:
    generation = cast("dict[str, Any]", live.get("generation") or {})
    return {
        "live": live["live_id"],
        "state": live.get("state"),
        "worker": generation.get("worker_id"),
        "epoch": generation.get("epoch"),
        "partition": live.get("partition"),
        "cursor": live.get("next_offset"),
    }


async def list_workers(dispatch: str, output: Output) -> None:
    """Every worker with state and slots."""
    async with DispatchClient(dispatch) as client:
        rows = cast("list[dict[str, Any]]", (await client.get("/v1/workers"))["workers"])
    columns = ("worker_id", "node", "state", "capacity", "held", "leaving", "reserved")
    output.table("workers", columns, rows, "no workers")


async def move_live(live: str, to: str | None, dispatch: str, output: Output) -> None:
    """Ask for a planned move."""
    async with DispatchClient(dispatch) as client:
        answer = await client.post(f"/v1/lives/{live}/move", {"to": to} if to else {})
    output.result(answer, f"live {live} moves: {answer}")


async def drain_worker(worker: str, dispatch: str, output: Output) -> None:
    """Ask that every live moves away."""
    async with DispatchClient(dispatch) as client:
        answer = await client.post(f"/v1/workers/{worker}/drain")
    output.result(answer, f"worker {worker} drains")


async def close_live(live: str, dispatch: str, output: Output) -> None:
    """Close at once; what was not spoken goes to the dead-letter topic."""
    async with DispatchClient(dispatch) as client:
        answer = await client.delete(f"/v1/lives/{live}")
    output.result({"live_id": live, **answer}, f"live {live} is closed")
