"""A segment's text to its voice, piece by piece.

A piece is a sentence or less. What is heard of it: the network's sound without the third of a
second of nothing around it, at constant gain, faded at both ends, then the pause that belongs to
its last punctuation mark, rounded up to whole ticks so that the next piece begins with a tick.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_stages.speech import levels
from gpu_stages.speech.pieces import PauseMs, Piece, pieces_of
from gpu_stages.speech.timeline import phoneme_table, shifted, until
from gpu_stages.speech.voice_model import RawVoice, VoiceModel
from gpu_stages.speech.voice_parts import VoiceParts
from schemas.media import SAMPLE_RATE_HZ, TICK_SAMPLES

LEAD_IN_SAMPLES: Final = 600  # 25 ms before the first sound, for the mouth to open
DIE_AWAY_SAMPLES: Final = 960  # 40 ms after the last


@dataclass(frozen=True, slots=True)
class Plan:
    """What has to be said for a segment. Making it costs about a millisecond per sentence."""

    pieces: tuple[Piece, ...]
    speed: float
    seed: int


def plan(model: VoiceModel, text: str, *, speed: float, seed: int) -> Plan:
    """Read the text. No pieces are left of a text without anything that can be spoken."""
    return Plan(tuple(pieces_of(model.phonemes(text))), speed, seed)


def piece_seed(seed: int, index: int) -> int:
    """Every piece has noise of its own, whether or not those before it are made again."""
    digest = hashlib.blake2b(b"%d/%d" % (seed, index), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def speak_piece(model: VoiceModel, planned: Plan, index: int) -> VoiceParts:
    """One piece; positions are relative to its own first sample."""
    piece = planned.pieces[index]
    raw = model.speak(piece.phonemes, planned.speed, piece_seed(planned.seed, index))
    return dress(raw, piece.pause_ms, planned.speed)


def speak_all(model: VoiceModel, planned: Plan) -> Iterator[tuple[int, VoiceParts]]:
    """Every piece with the segment sample at which it begins; positions are the segment's."""
    begin = 0
    for index in range(len(planned.pieces)):
        piece = speak_piece(model, planned, index)
        yield begin, at_sample(piece, begin)
        begin += len(piece.pcm)


def at_sample(piece: VoiceParts, begin: int) -> VoiceParts:
    """The piece with its phonemes placed at segment sample `begin`."""
    return VoiceParts(piece.pcm, shifted(piece.phonemes, begin), piece.loudness)


def dress(raw: RawVoice, pause_ms: PauseMs, speed: float) -> VoiceParts:
    """Cut, level, fade and pause. A slow voice pauses longer."""
    table = phoneme_table(raw.symbols, raw.durations, len(raw.wave))
    first, last = levels.audible_span(raw.wave)
    begin = max(0, first - LEAD_IN_SAMPLES)
    end = min(len(raw.wave), last + DIE_AWAY_SAMPLES)
    heard = levels.faded(levels.limited(raw.wave[begin:end]))
    pause = int(pause_ms * SAMPLE_RATE_HZ / 1000 / max(speed, 0.5))
    length = -(-(len(heard) + pause) // TICK_SAMPLES) * TICK_SAMPLES
    wave = np.zeros(length, np.float32)
    wave[: len(heard)] = heard
    phonemes = shifted(until(table, last + DIE_AWAY_SAMPLES // 4), -begin)
    return VoiceParts(levels.to_int16(wave), phonemes, levels.loudness(wave))
