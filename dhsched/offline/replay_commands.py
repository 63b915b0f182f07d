"""`dhsched replay`: a recorded stream becomes films, sound and hashes; two runs are compared."""

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from dhsched.command_line import USAGE_STATUS, Json, Kafka
from dhsched.output import CommandFailed, Output, fail

Switch = Annotated[bool, Parameter(negative="")]
Formats = Literal["avro", "jsonlines", "vtt", "srt", "text"]


def replay(
    source: str | None = None,
    *,
    out: Path | None = None,
    live: str | None = None,
    timing: Literal["recorded", "asap"] | None = None,
    format: Formats | None = None,
    stages: Annotated[Path | None, Parameter(env_var="DHSCHED_STAGES")] = None,
    device: Annotated[str, Parameter(env_var="DHSCHED_DEVICE")] = "cpu",
    ownership: Switch = False,
    sound_only: Switch = False,
    verify: Path | None = None,
    side_by_side: Annotated[
        tuple[Path, Path] | None, Parameter(name="--side-by-side", negative="")
    ] = None,
    sound: Literal["a", "b"] = "a",
    jobs: Annotated[int | None, Parameter(env_var="DHSCHED_JOBS")] = None,
    force: Switch = False,
    look: str | None = None,
    voice: str | None = None,
    kafka: Kafka = "",
    json: Json = False,
) -> None:
    """Replay a recorded stream, as fast as the stages can, with nothing else running.

    Each live becomes NAME.mp4, .wav, .vtt (subtitles with a time for each word), .events.jsonl,
    .frames and .manifest.json. A folder can be replayed into again after a break: finished lives
    are kept.

    Parameters
    ----------
    source
        A capture (.avro), a file that you have (.jsonl, .vtt, .srt, .txt), or topic:NAME.
    out
        FILE.mp4 or FILE.wav for one live, else a folder.
    live
        The live to replay; its id, where the file names none.
    timing
        recorded keeps every pause; asap leaves out those in which there is nothing to say.
    format
        What the file is, if its name does not say so.
    stages
        TOML file naming the stages' classes, to replay with other models.
    device
        cpu or cuda:N.
    ownership
        Move the live between two controllers, wherever it moved when it was recorded.
    sound_only
        Draw nothing.
    verify
        Manifest of an earlier replay: replay again, compare, and leave with 1 if they differ.
    side_by_side
        Two films (or their manifests) to put into one, at --out FILE.mp4; nothing is replayed.
    sound
        Whose sound that film has.
    jobs
        Lives at once; without it, one for each core.
    force
        Replace what stands at the outputs' names.
    look
        Look of the avatar instead of the recorded one.
    voice
        Voice instead of the recorded one.
    """
    # Read by numerical libraries when they are loaded: one thread a stage, as a worker's have.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    output = Output.make(json)
    try:
        if side_by_side is not None:
            _side_by_side(side_by_side, out, sound, output, force=force)
            return
        if source is None:
            raise CommandFailed("name a capture, a file or topic:NAME to replay", USAGE_STATUS)
        from dhsched.offline.replay import ReplayRequest, replay
        from dhsched.offline.verify import verify_replay

        request = ReplayRequest(
            source=source,
            out=out,
            live_id=live,
            timing=timing or "recorded",
            format=format,
            stages=stages,
            device=device,
            ownership=ownership,
            sound_only=sound_only,
            jobs=jobs,
            force=force,
            kafka=kafka,
            look=look,
            voice=voice,
        )
        if verify is None:
            replay(request, output)
        else:
            verify_replay(request, verify, output, timing_given=timing is not None)
    except CommandFailed as error:
        fail(error, json)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _side_by_side(
    films: tuple[Path, Path], out: Path | None, sound: str, output: Output, *, force: bool
) -> None:
    from dhsched.offline.side_by_side import put_side_by_side

    if out is None:
        raise CommandFailed("say where to with --out FILE.mp4", USAGE_STATUS)
    sound_of = 0 if sound == "a" else 1
    put_side_by_side(films[0], films[1], out, output, sound_of=sound_of, force=force)
