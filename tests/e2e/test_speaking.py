"""Text on the topic is spoken, interrupted, refused and closed, on Apache Kafka and embedded."""

import asyncio
import json

import pytest
from confluent_kafka import Consumer, Producer

from schemas.dead_letter import DeadLetter
from schemas.text_record import RecordKind, TextRecord, encode_text_record
from schemas.topics import DEAD_LETTER_TOPIC, TEXT_TOPIC
from tests.support.system import System

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def produce(kafka: str, live_id: str, *values: bytes) -> None:
    """Produce with a client that is not ours, its partitioner set to the Java default."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random"})
    for value in values:
        producer.produce(
            TEXT_TOPIC,
            value,
            live_id.encode(),
            on_delivery=lambda error, _: error and failed.append(error),
        )
    assert producer.flush(15) == 0
    assert failed == []


def dead_letters(kafka: str, count: int) -> list[DeadLetter]:
    """The first `count` dead letters that are in the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "reads-dead-letters",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([DEAD_LETTER_TOPIC])
    found: list[DeadLetter] = []
    try:
        for _ in range(200):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(DeadLetter.decode(message.value()))
            if len(found) >= count:
                break
    finally:
        consumer.close()
    return found


async def test_json_from_a_foreign_client_is_spoken(any_system: System) -> None:
    live_id = await any_system.create()
    async with any_system.events(live_id) as events:
        await asyncio.to_thread(
            produce,
            any_system.kafka,
            live_id,
            json.dumps({"text": "Hello there."}).encode(),
            json.dumps({"kind": "end_turn"}).encode(),
        )
        started = await events.wait_for_kind("speak_started")
        ended = await events.wait_for_kind("speak_ended")
    assert started["epoch"] == 1
    assert ended["offset"] == started["offset"]
    await any_system.close(live_id)


async def test_avro_from_a_foreign_client_is_spoken(any_system: System) -> None:
    live_id = await any_system.create()
    record = TextRecord(kind=RecordKind.TEXT, text="Plain Avro, single object.", event_id="avro-1")
    async with any_system.events(live_id) as events:
        await asyncio.to_thread(
            produce,
            any_system.kafka,
            live_id,
            encode_text_record(record),
            encode_text_record(TextRecord(kind=RecordKind.END_TURN)),
        )
        started = await events.wait_for_kind("speak_started")
        assert started["source_event_id"] == "avro-1"
        await events.wait_for_kind("speak_ended")
    await any_system.close(live_id)


async def test_a_token_stream_speaks_at_its_first_sentence(any_system: System) -> None:
    live_id = await any_system.create()
    tokens = ["One ", "sentence ", "is ", "whole. ", "The ", "next ", "is "]
    async with any_system.events(live_id) as events:
        for token in tokens:
            await any_system.say(live_id, token)
        await events.wait_for_kind("speak_started")
        assert not events.of_kind("speak_ended")
        await any_system.say(live_id, "not.", end_turn=True)
        await events.wait_for(
            lambda event: event["kind"] == "speak_ended" and event["offset"] is not None,
            what="the end of speech",
        )
    await any_system.close(live_id)


async def test_an_interrupt_stops_speech_and_skips_what_waits(any_system: System) -> None:
    live_id = await any_system.create()
    async with any_system.events(live_id) as events:
        for number in range(8):
            await any_system.say(
                live_id, f"This is sentence number {number}, and it is rather long. "
            )
        await events.wait_for_kind("speak_started")
        answer = await any_system.http.post(f"/v1/lives/{live_id}/interrupt")
        assert answer.status_code == 202, answer.text
        interrupted = await events.wait_for_kind("interrupted")
        assert interrupted["data"]
        await any_system.say(live_id, "Something new.", end_turn=True)
        new = await events.wait_for(
            lambda event: (
                event["kind"] == "speak_ended" and event["offset"] > interrupted["offset"]
            ),
            what="speech after the interrupt",
        )
        spoken = [event["offset"] for event in events.of_kind("speak_started")]
    assert new["offset"] > interrupted["offset"]
    assert not [offset for offset in spoken if 2 < offset - spoken[0] < 8]
    await any_system.close(live_id)


async def test_bad_records_are_dead_lettered_and_stop_nothing(any_system: System) -> None:
    live_id = await any_system.create()
    good = encode_text_record(TextRecord(kind=RecordKind.TEXT, text="Still here."))
    bad = [
        b"",
        b"not a record",
        b'{"text": 5}',
        b'{"text": "x", "colour": "red"}',
        good[:-4],
        good + b"\x00",
        b"\xc3\x01" + b"\x00" * 8 + b"abc",
        b'{"text": "   "}',
        b'{"text": "bell \\u0007"}',
        b'{"text": "' + b"x" * 70_000 + b'"}',
    ]
    async with any_system.events(live_id) as events:
        await asyncio.to_thread(
            produce,
            any_system.kafka,
            live_id,
            *bad,
            good,
            encode_text_record(TextRecord(kind=RecordKind.END_TURN)),
        )
        await events.wait_for_kind("speak_ended")
    await any_system.close(live_id)
    await asyncio.to_thread(produce, any_system.kafka, "nobody-knows-me", good)
    letters = await asyncio.to_thread(dead_letters, any_system.kafka, len(bad) + 1)
    mine = {letter.offset: letter for letter in letters if letter.key == live_id.encode()}
    assert len(mine) == len(bad)
    assert {letter.value for letter in mine.values()} == set(bad)
    assert all(letter.reason and letter.detail for letter in mine.values())
    assert any(letter.key == b"nobody-knows-me" for letter in letters)


async def test_close_in_the_stream_closes_after_everything_was_spoken(any_system: System) -> None:
    live_id = await any_system.create()
    async with any_system.events(live_id) as events:
        await asyncio.to_thread(
            produce, any_system.kafka, live_id, b'{"text": "Good bye."}', b'{"kind": "close"}'
        )
        await events.wait_for_kind("speak_ended")
        await events.wait_for(
            lambda event: (
                event["kind"] == "state_updated" and event["data"].get("state") == "closed"
            ),
            what="the close",
        )
    live = (await any_system.http.get(f"/v1/lives/{live_id}")).json()
    assert live["state"] == "closed"
    answer = await any_system.http.post(f"/v1/lives/{live_id}/text", json={"text": "late"})
    assert answer.status_code == 410
    assert answer.headers["content-type"].startswith("application/problem+json")


async def test_two_lives_speak_at_once(any_system: System) -> None:
    lives = [await any_system.create(), await any_system.create()]
    async with any_system.events(lives[0]) as first, any_system.events(lives[1]) as second:
        for live_id in lives:
            await any_system.say(live_id, "We both speak at the very same time.", end_turn=True)
        await first.wait_for_kind("speak_ended")
        await second.wait_for_kind("speak_ended")
    for live_id in lives:
        await any_system.close(live_id)
