"""Units in, fragmented MP4 out: begins at a key frame, cuts where time or the key frames say so.

PURE.
"""

from rtc_output.h264 import ParameterSets, length_prefixed, parameter_sets, split_nals
from rtc_output.isobmff import Sample, fragment, init_segment
from rtc_output.units import UNIT_US
from schemas.media import RTP_AUDIO_CLOCK_HZ, RTP_VIDEO_CLOCK_HZ


class Fragmenter:
    """One MP4 stream. `add` returns the bytes that became complete, often none.

    Times are microseconds on any line that does not go back; a jump starts a new fragment at its
    right time. A picture whose parameter sets changed carries its own in the sample.
    """

    def __init__(self, fragment_us: int = 200_000) -> None:
        self.started = False
        self.duration_us = 0
        self._fragment_us = fragment_us
        self._sets: ParameterSets | None = None
        self._sequence = 0
        self._origin_us = 0
        self._start_us = 0
        self._next_us = 0
        self._pictures: list[Sample] = []
        self._packets: list[Sample] = []

    def add(self, at_us: int, *, opus: bytes, video: bytes, keyframe: bool) -> bytes:
        """One unit: 20 ms of sound, and the picture that begins with it unless `video` is empty."""
        done = b""
        nals = split_nals(video) if video else []
        if not self.started:
            if not keyframe or (sets := parameter_sets(nals)) is None:
                return b""
            self.started = True
            self._sets = sets
            self._origin_us = self._start_us = self._next_us = at_us
            done = init_segment(sets)
        elif at_us < self._next_us:
            raise ValueError("media time went back")
        cut = keyframe or at_us != self._next_us or at_us - self._start_us >= self._fragment_us
        if cut and (nals or at_us != self._next_us):
            done += self.flush()
        if not self._packets:
            self._start_us = at_us
        if nals and self._sets is not None:
            self._pictures.append(Sample(length_prefixed(nals, self._sets), sync=keyframe))
        self._packets.append(Sample(opus))
        self._next_us = at_us + UNIT_US
        self.duration_us = self._next_us - self._origin_us
        return done

    def flush(self) -> bytes:
        """What is gathered, as a fragment; call it once more at the end."""
        if not self._packets:
            return b""
        self._sequence += 1
        start_us = self._start_us - self._origin_us
        pictures, self._pictures = self._pictures, []
        packets, self._packets = self._packets, []
        return fragment(
            self._sequence,
            video_start=start_us * (RTP_VIDEO_CLOCK_HZ // 1000) // 1000,
            audio_start=start_us * (RTP_AUDIO_CLOCK_HZ // 1000) // 1000,
            pictures=pictures,
            packets=packets,
        )
