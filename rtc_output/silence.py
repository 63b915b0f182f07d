"""A 20 ms Opus packet that says nothing, for sound that must not be heard any more."""

from functools import cache

import av
import numpy as np

from schemas.media import OPUS_PACKET_SAMPLES, SAMPLE_RATE_HZ

SETTLE_PACKETS = 10


@cache
def silent_opus() -> bytes:
    """One packet of digital silence: mono, 24 kHz, 20 ms; encoded once per process.

    The encoder is given a fifth of a second first, so that the packet holds its settled state and
    not the start of a stream.
    """
    encoder = av.CodecContext.create("libopus", "w")
    encoder.sample_rate = SAMPLE_RATE_HZ
    encoder.layout = "mono"
    encoder.format = "s16"
    encoder.options = {"application": "voip", "frame_duration": "20"}
    packets: list[bytes] = []
    for index in range(SETTLE_PACKETS):
        frame = av.AudioFrame.from_ndarray(
            np.zeros((1, OPUS_PACKET_SAMPLES), np.int16), format="s16", layout="mono"
        )
        frame.sample_rate = SAMPLE_RATE_HZ
        frame.pts = index * OPUS_PACKET_SAMPLES
        packets += [bytes(packet) for packet in encoder.encode(frame)]
    return packets[-1]
