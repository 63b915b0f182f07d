"""A motion model of one's own, as a class: the bundled one, with a nod at every stressed word.

    DHSCHED_STAGES=examples/own_models/nodding.toml dhsched demo

A stage is a class derived from `gpu_stages.stage.Stage`. This one derives from the bundled motion
stage, which does the bookkeeping (credits, interrupts, ticks), and replaces what moves the face.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpu_stages.face.parameters import Face
from gpu_stages.header import Header
from gpu_stages.speech.voice_parts import VoiceParts
from gpu_stages.stages.motion import MotionStage
from schemas.media import TICK_SAMPLES

NOD_TICKS = 7  # 280 ms, from the beginning of the vowel


class NoddingMotion(MotionStage):
    """Setting `nod_radians`: how far the head goes down at a stressed vowel (0 to 0.3)."""

    def load(self, settings: Mapping[str, object], device: str) -> None:
        """Raises ValueError for a setting that is not right: it becomes the start's error."""
        unknown = set(settings) - {"nod_radians"}
        if unknown:
            raise ValueError(f"unknown settings of NoddingMotion: {', '.join(sorted(unknown))}")
        nod = settings.get("nod_radians", 0.06)
        if not isinstance(nod, int | float) or not 0 <= nod <= 0.3:
            raise ValueError(f"nod_radians is {nod!r}; it must be a number from 0 to 0.3")
        self._nod = float(nod)
        self._nods = 0
        super().load({}, device)

    def curve_of(self, header: Header, parts: VoiceParts, ticks: int) -> NDArray[np.float32]:
        """The bundled curve, float32 [ticks, 24], and the nods. Positive pitch looks down."""
        curve = super().curve_of(header, parts, ticks)
        shape = self._nod * np.sin(np.linspace(0, np.pi, NOD_TICKS + 2)[1:-1])
        for phoneme in parts.phonemes[parts.phonemes["stress"] == 2]:
            self._nods += 1
            first = (int(phoneme["start"]) - header.sample_start) // TICK_SAMPLES
            for tick, pitch in enumerate(shape, start=first):
                if 0 <= tick < ticks:
                    curve[tick, Face.HEAD_PITCH] += pitch
        return curve

    def stats(self) -> Mapping[str, float]:
        """In the worker's metrics as `stages.motion.stage_nods`."""
        return {**super().stats(), "nods": self._nods}
