"""`dhsched capture`: a stream on Kafka becomes a file that can be replayed."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dhsched.command_line import Json, Kafka, run
from dhsched.output import Output

From = Annotated[str | None, Parameter(name="--from", allow_leading_hyphen=True)]
Until = Annotated[str | None, Parameter(name="--until", allow_leading_hyphen=True)]
Switch = Annotated[bool, Parameter(negative="")]


def capture(
    *,
    out: Path,
    live: str | None = None,
    all_lives: Annotated[bool, Parameter(name="--all", negative="")] = False,
    begin: From = None,
    until: Until = None,
    codec: str = "deflate",
    resume: Switch = False,
    overwrite: Switch = False,
    topic: str | None = None,
    events_topic: str | None = None,
    kafka: Kafka = "",
    json: Json = False,
) -> None:
    """Capture text records and events into one Avro file, to be replayed.

    Nothing that reads the topics is disturbed. The range ends at the log's present end, if not
    before; a cluster without DHSched's events topic is captured as well.

    Parameters
    ----------
    out
        The file, FILE.avro. Until it is whole it is called FILE.avro.part.
    live
        The live to capture.
    all_lives
        Capture all lives.
    begin
        An offset (1200; 0:1200,3:80 by partition), a moment (2026-11-29T10:00, UTC) or a span
        before now (-10m). Without it: the log's start.
    until
        The same, or a span after the beginning (+5m). Without it: the log's end.
    codec
        How blocks are compressed: null, deflate, zstandard, snappy, bzip2 or xz.
    resume
        Go on with an interrupted capture behind its last whole block.
    overwrite
        Replace what stands at the file's name.
    topic
        The topic with the text, if it is not dhsched.text.
    events_topic
        The topic with the events, if it is not dhsched.events.
    """
    from dhsched.offline.capture import CaptureRequest, capture_to_file
    from schemas.topics import EVENTS_TOPIC, TEXT_TOPIC

    request = CaptureRequest(
        kafka=kafka,
        out=out,
        live_id=live,
        all_lives=all_lives,
        begin=begin,
        until=until,
        codec=codec,
        resume=resume,
        overwrite=overwrite,
        topic=topic or TEXT_TOPIC,
        events_topic=events_topic or EVENTS_TOPIC,
    )
    run(capture_to_file(request, Output.make(json)), json)
