"""A live without stages: a drawn face whose mouth moves while a tone is heard, encoded for real.

Makes ticks when it gets credit, as the stages do, so that the egress and everything after it can be
tested alone, with real packets.
"""

import asyncio
import time
from collections.abc import Callable
from fractions import Fraction

import av
import numpy as np
from av.video.frame import PictureType

from rtc_output.egress import LiveEgress
from rtc_output.pacer import PacerSettings
from rtc_output.pacing_loop import monotonic_us
from schemas.media import (
    FRAMES_PER_S,
    OPUS_PACKET_SAMPLES,
    SAMPLE_RATE_HZ,
    TICK_SAMPLES,
    MediaTick,
    TickFlag,
)

SIZE_PX = 256
TONE_HZ = 300
GOP_FRAMES = 50


async def until(condition: Callable[[], bool], what: str, seconds: float = 15.0) -> None:
    """Wait for a condition; fails saying `what` it waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for: {what}"
        await asyncio.sleep(0.01)


class SyntheticEncoder:
    """Turns (picture, samples) into the packets of a tick: 42e01f H.264 and 24 kHz mono Opus."""

    def __init__(self, size_px: int = SIZE_PX) -> None:
        self.size_px = size_px
        video = av.CodecContext.create("libx264", "w")
        video.width = video.height = size_px
        video.pix_fmt = "yuv420p"
        video.framerate = Fraction(FRAMES_PER_S, 1)
        video.time_base = Fraction(1, FRAMES_PER_S)
        video.gop_size = GOP_FRAMES
        video.profile = "Baseline"
        video.options = {"preset": "ultrafast", "tune": "zerolatency", "level": "31"}
        audio = av.CodecContext.create("libopus", "w")
        audio.sample_rate = SAMPLE_RATE_HZ
        audio.layout = "mono"
        audio.format = "s16"
        audio.bit_rate = 32_000
        audio.options = {"application": "voip", "frame_duration": "20"}
        self._video, self._audio = video, audio
        self._frame = self._packet = 0

    def tick(
        self, rgb: np.ndarray, samples: np.ndarray, *, keyframe: bool
    ) -> tuple[bytes, bool, tuple[bytes, bytes]]:
        """(H.264 access unit, is a key frame, two Opus packets)."""
        picture = av.VideoFrame.from_ndarray(rgb, format="rgb24")
        picture.pts = self._frame
        picture.pict_type = PictureType.I if keyframe else PictureType.NONE
        self._frame += 1
        packets = self._video.encode(picture)
        sounds: list[bytes] = []
        for part in samples.reshape(2, OPUS_PACKET_SAMPLES):
            sound = av.AudioFrame.from_ndarray(part.reshape(1, -1), format="s16", layout="mono")
            sound.sample_rate = SAMPLE_RATE_HZ
            sound.pts = self._packet * OPUS_PACKET_SAMPLES
            self._packet += 1
            sounds += [bytes(packet) for packet in self._audio.encode(sound)]
        assert len(packets) == 1
        assert len(sounds) == 2
        return bytes(packets[0]), packets[0].is_keyframe, (sounds[0], sounds[1])


class SyntheticLive:
    """Ticks of one live on credit; `speak` makes the next ones heard and the mouth move."""

    def __init__(self, *, binding: int = 1, epoch: int = 1, start_frame: int = 0) -> None:
        self.binding, self.epoch = binding, epoch
        self.frame = start_frame
        self.utterance = 0
        self.keyframes_asked = 0
        self.speech_ticks = 0
        self.spoken_ticks = 0
        self.last_speech_frame = -1
        self.paused = False
        self.on_sent: Callable[[MediaTick, int], None] = lambda _tick, _now_us: None
        self._encoder = SyntheticEncoder()
        self._keyframe = True
        self._credit = start_frame - 1
        self._wake: asyncio.Handle | None = None
        self.egress = LiveEgress(
            live_id="synthetic",
            binding=binding,
            epoch=epoch,
            start_frame=start_frame,
            on_sent=lambda tick, now_us: self.on_sent(tick, now_us),
            set_credit=self._set_credit,
            request_keyframe=self._request_keyframe,
            now_us=monotonic_us,
            settings=PacerSettings(),
        )

    def speak(self, seconds: float) -> None:
        """Be heard for this long from the next tick on."""
        self.spoken_ticks = 0
        self.speech_ticks = round(seconds * FRAMES_PER_S)

    def interrupt(self) -> None:
        """Be silent from now on, as an interrupt record does it."""
        self.utterance += 1
        self.egress.interrupt(self.utterance)
        self.speech_ticks = 0

    def resume(self) -> None:
        """Make the ticks that were held back by `paused`."""
        self.paused = False
        self._set_credit(self._credit)

    def close(self) -> None:
        """Make no more ticks."""
        self.paused = True
        self.egress.close()

    def _request_keyframe(self) -> None:
        self.keyframes_asked += 1
        self._keyframe = True

    def _set_credit(self, credit: int) -> None:
        self._credit = credit
        if self._wake is None:
            self._wake = asyncio.get_running_loop().call_soon(self._make)

    def _make(self) -> None:
        self._wake = None
        if not self.paused and self.frame <= self._credit:
            self.egress.push(self.next_tick())
            self._set_credit(self._credit)

    def next_tick(self) -> MediaTick:
        """Encode the next tick."""
        speaking = self.speech_ticks > 0
        samples = np.zeros(TICK_SAMPLES, np.int16)
        start = -1
        if speaking:
            self.speech_ticks -= 1
            start = self.spoken_ticks * TICK_SAMPLES
            self.spoken_ticks += 1
            self.last_speech_frame = self.frame
            at = (start + np.arange(TICK_SAMPLES)) / SAMPLE_RATE_HZ
            samples = (9000 * np.sin(2 * np.pi * TONE_HZ * at)).astype(np.int16)
        video, keyframe, opus = self._encoder.tick(
            draw_face(self.frame, speaking=speaking), samples, keyframe=self._keyframe
        )
        if keyframe:
            self._keyframe = False
        tick = MediaTick(
            live_slot=0,
            binding=self.binding,
            epoch=self.epoch,
            utterance=self.utterance,
            frame_index=self.frame,
            segment_id=1 if speaking else 0,
            sample_start=start,
            speech_samples=TICK_SAMPLES if speaking else 0,
            flags=TickFlag.KEYFRAME if keyframe else TickFlag.NONE,
            opus=opus,
            video=video,
            stamps_us=(0, 0, 0, monotonic_us()),
        )
        self.frame += 1
        return tick


def draw_face(frame: int, *, speaking: bool) -> np.ndarray:
    """uint8 RGB (256, 256, 3): a head, eyes, a mouth that opens while speaking, a moving dot."""
    picture = np.empty((SIZE_PX, SIZE_PX, 3), np.uint8)
    picture[:] = (36, 44, 60)
    y, x = np.mgrid[0:SIZE_PX, 0:SIZE_PX]
    picture[((x - 128) / 84) ** 2 + ((y - 128) / 104) ** 2 < 1] = (214, 170, 140)
    for eye in (92, 164):
        picture[((x - eye) / 14) ** 2 + ((y - 104) / 9) ** 2 < 1] = (40, 30, 30)
    opening = 3 + (14 * (frame % 6) // 5 if speaking else 0)
    picture[((x - 128) / 34) ** 2 + ((y - 182) / opening) ** 2 < 1] = (120, 30, 40)
    dot = 8 + frame * 3 % 240
    picture[4:12, dot : dot + 8] = (240, 240, 240)
    return picture
