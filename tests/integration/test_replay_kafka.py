"""`dhsched replay topic:NAME`: straight from a broker, the same as from a capture of it."""

import json
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from stream.aiokafka_transport import AiokafkaTransport
from stream.transport import TopicSpec
from tests.support.kafka_ready import run
from tests.support.recordings import stages_file

pytestmark = pytest.mark.kafka

TOPIC = "somebody-elses.text"
SAID = [("anna", "One two. "), ("bert", "Not asked for. "), ("anna", "Three. ")]


async def write(bootstrap: str) -> None:
    transport = AiokafkaTransport(bootstrap)
    try:
        await transport.ensure_topics([TopicSpec(TOPIC, 3)])
        producer = await transport.producer()
        for live, text in SAID:
            await producer.send(TOPIC, key=live.encode(), value=json.dumps({"text": text}).encode())
        await producer.close()
    finally:
        await transport.close()


def dhsched(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "dhsched", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def samples(path: Path) -> bytes:
    with wave.open(str(path)) as sound:
        return sound.readframes(sound.getnframes())


def test_a_topic_is_replayed_as_its_capture_is(embedded_bootstrap: str, tmp_path: Path) -> None:
    bootstrap = embedded_bootstrap
    run(lambda: write(bootstrap))
    common = ["--kafka", bootstrap, "--stages", str(stages_file(tmp_path))]
    topic = [f"topic:{TOPIC}", "--live", "anna", "--out", str(tmp_path / "topic.wav")]
    made = dhsched("replay", *topic, *common)
    (row,) = made["lives"]  # type: ignore[misc]
    assert (row["live"], row["records"], row["segments"]) == ("anna", 2, 2)
    again = dhsched("replay", *topic, *common)
    assert [one["status"] for one in again["lives"]] == ["kept"]  # type: ignore[attr-defined]
    capture = tmp_path / "anna.avro"
    dhsched("capture", "--live", "anna", "--topic", TOPIC, "--out", str(capture), *common[:2])
    dhsched("replay", str(capture), "--out", str(tmp_path / "file.wav"), *common[2:])
    assert samples(tmp_path / "file.wav") == samples(tmp_path / "topic.wav")
