"""The encode stage: TICK_PICTURE in, TICK_MEDIA (two Opus packets, one access unit) out.

Every tick leaves, muted or not: the video stream must stay whole. Encoders are made with a
binding's first tick and end with it. With `threads` above 1, lives of a batch are encoded side by
side (the codecs leave Python's lock alone); the ticks of one live stay in order.

A live whose encoder breaks fails alone: its encoders are dropped, so its next tick begins a new
stream with a key frame, and nobody else's stream is touched. (The loop must not try a batch again
here: an encoder that was given a frame has gone on.)
"""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import structlog

from gpu_stages.encode.audio import AudioSettings, OpusEncoder
from gpu_stages.encode.choice import choose, open_or_next, takes_device_pictures
from gpu_stages.encode.mute import Muter
from gpu_stages.encode.settings import EncodeSettings, read_settings
from gpu_stages.encode.video import PictureEncoder, VideoSettings
from gpu_stages.header import Header, MessageKind
from gpu_stages.live_table import LiveRow
from gpu_stages.stage import Message, Outbox, Stage
from schemas.media import TICK_SAMPLES, TickFlag

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Encoders:
    """One binding's encoders. `keyframe_requests` is the row's count that was answered."""

    binding: int
    audio: OpusEncoder
    video: PictureEncoder
    muter: Muter
    keyframe_requests: int


@dataclass(frozen=True, slots=True)
class _Media:
    header: Header
    parts: tuple[bytes, bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Done:
    """One live's part of a batch: what was made, and what was not because of `error`."""

    media: Sequence[_Media]
    failed: Sequence[Header] = ()
    error: Exception | None = None


class EncodeStage(Stage):
    """Settings: see `gpu_stages.encode.settings`."""

    name: ClassVar[str] = "encode"
    outputs_per_message_max: ClassVar[int] = 1
    repeatable: ClassVar[bool | None] = False
    batch_max: int = 16

    def __init__(self) -> None:
        self._settings = EncodeSettings(VideoSettings(), AudioSettings(), threads=1)
        self._encoders: dict[int, _Encoders] = {}
        self._chosen: VideoSettings | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._counts = dict.fromkeys(
            ("ticks", "keyframes", "muted_ticks", "video_bytes", "opus_bytes", "encode_s"), 0.0
        )

    def load(self, settings: Mapping[str, object], device: str) -> None:
        """Open and warm up the codecs. Raises `ValueError` for settings that do not work."""
        wanted = read_settings(settings)
        self._settings = replace(wanted, video=self._choose(wanted.video, device))
        OpusEncoder(wanted.audio).encode(np.zeros(TICK_SAMPLES, np.int16))
        threads = wanted.threads or int(os.environ.get("OMP_NUM_THREADS") or 1)
        if threads > 1:
            self._pool = ThreadPoolExecutor(threads, thread_name_prefix="encode")

    def accepts_device_parts(self, settings: Mapping[str, object], device: str) -> bool:
        """Where the encoder reads them there: others would only copy them down."""
        return takes_device_pictures(self._choose(read_settings(settings).video, device))

    def _choose(self, wanted: VideoSettings, device: str) -> VideoSettings:
        """Settings that work, found out once; in the log, which and why not those before it."""
        if self._chosen is None:
            choice = choose(wanted, device)
            for reason in choice.refused:
                log.warning("video_encoder_refused", reason=reason, instead=choice.settings.encoder)
            log.info("video_encoder", encoder=choice.settings.encoder, device=device)
            self._chosen = choice.settings
        return self._chosen

    def process(self, batch: Sequence[Message], rows: Sequence[LiveRow], out: Outbox) -> None:
        """Encode every tick of the batch; each live's leave in the order they came.

        Raises only when no live of the batch could be encoded.
        """
        began = time.monotonic()
        by_live: dict[int, list[tuple[Message, LiveRow]]] = {}
        for message, row in zip(batch, rows, strict=True):
            if message.header.kind is MessageKind.TICK_PICTURE:
                by_live.setdefault(row.live_slot, []).append((message, row))
        side_by_side = self._pool is not None and len(by_live) > 1
        encoded = self._pool.map if self._pool is not None and side_by_side else map
        broken: list[_Done] = []
        for done in encoded(self._encode_live, by_live.values()):
            self._send(done.media, out)
            if done.error is not None:
                broken.append(done)
        self._counts["encode_s"] += time.monotonic() - began
        self._tell(broken, out, everybody=len(broken) == len(by_live))

    def forget(self, live_slot: int) -> None:
        """Close the binding's encoders."""
        gone = self._encoders.pop(live_slot, None)
        if gone is not None:
            gone.video.close()

    def stats(self) -> Mapping[str, float]:
        """`encode_s` is wall time; `video_bytes` / `ticks` x 25 is the rate."""
        return {**self._counts, "lives": float(len(self._encoders))}

    def close(self) -> None:
        """Let go of the threads and the codecs."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        for live_slot in list(self._encoders):
            self.forget(live_slot)

    def _send(self, ticks: Sequence[_Media], out: Outbox) -> None:
        for media in ticks:
            out.send(media.header, media.parts)
            self._counts["ticks"] += 1
            self._counts["keyframes"] += bool(media.header.flags & TickFlag.KEYFRAME)
            self._counts["muted_ticks"] += bool(media.header.flags & TickFlag.MUTED)
            self._counts["opus_bytes"] += len(media.parts[0]) + len(media.parts[1])
            self._counts["video_bytes"] += len(media.parts[2])

    def _tell(self, broken: Sequence[_Done], out: Outbox, *, everybody: bool) -> None:
        for done in broken:
            if everybody and done.error is not None:
                raise done.error
            reason = f"encode: {type(done.error).__name__}: {done.error}"
            log.error("live_not_encoded", live_slot=done.failed[0].live_slot, reason=reason)
            for segment_id in {header.segment_id for header in done.failed} - {0}:
                header = replace(
                    done.failed[0], kind=MessageKind.SEGMENT_FAILED, segment_id=segment_id
                )
                out.send(header, (reason.encode(),))

    def _encode_live(self, ticks: Sequence[tuple[Message, LiveRow]]) -> _Done:
        media: list[_Media] = []
        for message, row in ticks:
            try:
                media.append(self._encode(message, row))
            except Exception as error:
                self.forget(row.live_slot)
                return _Done(media, [m.header for m, _ in ticks[len(media) :]], error)
        return _Done(media)

    def _encode(self, message: Message, row: LiveRow) -> _Media:
        encoders = self._encoders_of(row)
        header = message.header
        muted = header.utterance < row.utterance
        pcm = np.frombuffer(message.parts[0], np.int16)
        opus = encoders.audio.encode(encoders.muter.step(pcm, muted=muted))
        wanted = row.keyframe_requests != encoders.keyframe_requests
        there = message.on_device[1] if message.on_device else None
        video, keyframe = encoders.video.encode(there or message.parts[1], keyframe=wanted)
        encoders.keyframe_requests = row.keyframe_requests
        flags = header.flags
        flags |= TickFlag.KEYFRAME if keyframe else TickFlag.NONE
        flags |= TickFlag.MUTED if muted else TickFlag.NONE
        fed, voiced, drawn, _ = header.stamps_us
        encoded = time.monotonic_ns() // 1000
        done = replace(
            header,
            kind=MessageKind.TICK_MEDIA,
            flags=flags,
            stamps_us=(fed, voiced, drawn, encoded),
        )
        return _Media(done, (*opus, video))

    def _encoders_of(self, row: LiveRow) -> _Encoders:
        """The binding's encoders, made anew for a new binding or another size."""
        mine = self._encoders.get(row.live_slot)
        size = (row.width_px, row.height_px)
        if (
            mine is None
            or mine.binding != row.binding
            or (mine.video.width_px, mine.video.height_px) != size
        ):
            self.forget(row.live_slot)
            video, refused = open_or_next(self._settings.video, *size)
            for reason in refused:
                log.warning("video_encoder_refused", live_slot=row.live_slot, reason=reason)
            mine = _Encoders(
                row.binding,
                OpusEncoder(self._settings.audio),
                video,
                Muter(),
                row.keyframe_requests,
            )
            self._encoders[row.live_slot] = mine
        return mine
