"""The payload of a SEGMENT_VOICE message: what speech tells motion about a stretch of sound.

Three parts: the samples (int16, 24 kHz mono), the phoneme table (`PHONEME_DTYPE`, in time order)
and the loudness (float32, one value per `LOUDNESS_HOP` samples from the message's first sample
on, about 1 in a stressed vowel). All positions are samples of the whole segment, so a message
that leaves out what was already heard means the same as one that does not.

PURE.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

LOUDNESS_HOP: Final = 240  # 10 ms

PHONEME_DTYPE: Final = np.dtype(
    [
        ("start", "<i4"),  # segment sample at which it is first heard
        ("end", "<i4"),  # exclusive
        ("phoneme", "<u2"),  # code point in the voice's alphabet; punctuation is a pause
        ("stress", "u1"),  # 0 none, 1 secondary, 2 primary; on vowels only
        ("pad", "u1"),
    ]
)


class BadVoiceParts(ValueError):
    """The parts of a SEGMENT_VOICE message do not fit together: a bug in the speech stage."""


@dataclass(frozen=True, slots=True)
class VoiceParts:
    """Samples `pcm` (int16 [n]), `phonemes` (`PHONEME_DTYPE` [p]), `loudness` (float32 [m])."""

    pcm: NDArray[np.int16]
    phonemes: NDArray[np.void]
    loudness: NDArray[np.float32]

    def parts(self) -> tuple[NDArray[np.int16], NDArray[np.void], NDArray[np.float32]]:
        """In the order of the message."""
        return (self.pcm, self.phonemes, self.loudness)

    def cut(self, begin: int, end: int, first_sample: int) -> "VoiceParts":
        """The samples [begin, end) of this stretch, whose own first sample is `first_sample`.

        `begin` is a multiple of LOUDNESS_HOP or the loudness is up to 10 ms early. The phoneme
        table is kept whole but for what ends long before: a mouth comes out of what it just said.
        """
        keep = self.phonemes["end"] > first_sample + begin - MEMORY_SAMPLES
        return VoiceParts(
            pcm=self.pcm[begin:end],
            phonemes=self.phonemes[keep],
            loudness=self.loudness[begin // LOUDNESS_HOP : -(-end // LOUDNESS_HOP)],
        )


MEMORY_SAMPLES: Final = 24_000
"""How far back a phoneme can still shape the mouth, generously."""

EMPTY: Final = VoiceParts(
    pcm=np.zeros(0, np.int16),
    phonemes=np.zeros(0, PHONEME_DTYPE),
    loudness=np.zeros(0, np.float32),
)
"""A segment without anything to say still has a beginning and an end."""


def read_voice_parts(parts: Sequence[memoryview]) -> VoiceParts:
    """The parts of a received message, copied out of the ring. Raises `BadVoiceParts`."""
    if len(parts) < 3:
        raise BadVoiceParts(f"{len(parts)} parts instead of 3")
    pcm, phonemes, loudness = parts[0], parts[1], parts[2]
    if pcm.nbytes % 2 or phonemes.nbytes % PHONEME_DTYPE.itemsize or loudness.nbytes % 4:
        raise BadVoiceParts(f"lengths {pcm.nbytes}, {phonemes.nbytes}, {loudness.nbytes} bytes")
    return VoiceParts(
        pcm=np.frombuffer(pcm, "<i2").astype(np.int16, copy=True),
        phonemes=np.frombuffer(phonemes, PHONEME_DTYPE).copy(),
        loudness=np.frombuffer(loudness, "<f4").astype(np.float32, copy=True),
    )
