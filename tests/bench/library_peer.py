"""A stateful exactly-once consumer of quixstreams, doing the bookkeeping that a worker does.

    python -m tests.bench.library_peer --kafka HOST:PORT --state DIR --group G --commit-s SECONDS

Runs in a virtual environment of its own (see `rival_library`), so it imports nothing of ours. Per
live it keeps next offset, last producer number, checkpoint and the open text in the library's
keyed state, looks whether a text may be spoken, cuts sentences with one regular expression, drops
repeated numbers and writes two events of each sentence to a topic, as a worker does when one begins
and ends: offsets, state and output are committed in one Kafka transaction.
"""

import argparse
import io
import json
import re
from typing import Any

import fastavro
from quixstreams import Application, message_context

SINGLE_OBJECT_HEADER_BYTES = 10
STOPPED_MS_MAX = 90_000
TEXT_CHARS_MAX = 16_384
_SENTENCE = re.compile(r"[^.!?]*[.!?]\s+")


def application(asked: argparse.Namespace) -> Application:
    """What runs: one topic in, one out, state in between."""
    app = Application(
        broker_address=asked.kafka,
        consumer_group=asked.group,
        auto_offset_reset="latest",
        commit_interval=asked.commit_s,
        state_dir=asked.state,
        processing_guarantee="exactly-once",
        loglevel="WARNING",
        consumer_poll_timeout=0.05,
        consumer_extra_config={
            "session.timeout.ms": STOPPED_MS_MAX,
            "max.poll.interval.ms": STOPPED_MS_MAX + 60_000,
        },
    )
    parsed = fastavro.parse_schema(json.loads(asked.schema))
    source = app.topic(asked.topic, key_deserializer="str", value_deserializer="bytes")
    events = app.topic("bench.events", key_serializer="str", value_serializer="json")

    def take(value: bytes, state: Any) -> list[dict[str, Any]]:
        body = io.BytesIO(value[SINGLE_OBJECT_HEADER_BYTES:])
        record = fastavro.schemaless_reader(body, parsed, None)
        live = state.get("live") or {"next_offset": 0, "seq": 0, "text": "", "checkpoint": None}
        offset = message_context().offset
        if offset < live["next_offset"] or record["seq"] <= live["seq"]:
            return []
        added = record["text"]
        if not added or len(added) > TEXT_CHARS_MAX or not added.isprintable():
            raise ValueError(f"the record at {offset} may not be spoken")
        live["next_offset"], live["seq"] = offset + 1, record["seq"]
        text = live["text"] + added
        found = _SENTENCE.match(text)
        out: list[dict[str, Any]] = []
        while found is not None:
            about = {"source_event_id": record["event_id"], "offset": offset, "samples": 0}
            out.append({"kind": "speak_started", "text": found.group(), **about})
            out.append({"kind": "speak_ended", "ends_turn": False, **about})
            live["checkpoint"] = {"end_offset": offset, "end_char": found.end(), "samples": 0}
            text = text[found.end() :]
            found = _SENTENCE.match(text)
        live["text"] = text
        state.set("live", live)
        return out

    app.dataframe(source).apply(take, stateful=True, expand=True).to_topic(events)
    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--schema", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--commit-s", type=float, required=True)
    app = application(parser.parse_args())
    print(json.dumps({"ready": True}), flush=True)
    app.run()


if __name__ == "__main__":
    main()
