"""What a running system wrote is captured whole: how a live was opened, owned, and what it said."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from dhsched.offline.capture_file import CaptureReader
from dhsched.offline.entries import CapturedEvent, CapturedRecord, generation_of, options_of
from schemas.events import EventKind
from schemas.text_record import decode_text_record
from tests.support.system import System

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

OPTIONS = {"look": "clay", "voice": "heart", "speed": 1.25, "seed": 77, "width_px": 128}


async def test_a_live_is_captured_with_how_it_was_opened(
    any_system: System, tmp_path: Path
) -> None:
    live_id = await any_system.create(options=OPTIONS)
    other = await any_system.create()
    async with any_system.events(live_id) as events:
        await any_system.say(other, "Somebody else.")
        said = await any_system.say(live_id, "Hello to the capture.")
        await any_system.http.post(f"/v1/lives/{live_id}/text", json={"end_turn": True})
        await events.wait_for_kind("speak_ended")
    out = tmp_path / "a.avro"
    command = [sys.executable, "-m", "dhsched", "capture", "--live", live_id, "--json"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--out", str(out), "--kafka", any_system.kafka),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed
    with CaptureReader(out) as reader:
        entries = list(reader)
    records = [entry for entry in entries if isinstance(entry, CapturedRecord)]
    assert {entry.key for entry in records} == {live_id.encode()}
    assert records[0].offset == said["offset"]
    assert decode_text_record(records[0].value).text == "Hello to the capture."
    told = [entry.event for entry in entries if isinstance(entry, CapturedEvent)]
    (options,) = [found for one in told if (found := options_of(one)) is not None]
    assert {name: getattr(options, name) for name in OPTIONS} == OPTIONS
    (generation,) = [found for one in told if (found := generation_of(one)) is not None]
    assert generation.epoch == 1
    assert generation.next_offset <= said["offset"]
    assert EventKind.SPEAK_ENDED in {one.kind for one in told}
    assert json.loads(printed)["records"] == len(records)
    for one in (live_id, other):
        await any_system.close(one)
