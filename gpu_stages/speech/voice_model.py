"""The neural voice: text to phonemes, phonemes to samples with a time for each phoneme.

The model and the lexicon are those of the `hibari-tts` wheel. Its network predicts, for every
symbol, a duration that the released model keeps to itself; the node that clips the durations
(`/Clip`, output float32 [symbols], in units of 25 ms) is added to the model's outputs when it is
loaded, so that the face can be timed by the very numbers that timed the sound.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from hibari import dsp
from hibari.g2p import G2P
from hibari.tts import ASSETS, Hibari
from numpy.typing import NDArray

from gpu_stages.speech.reading import plain, readable
from gpu_stages.speech.voices import VoiceFile, check_model

DURATION_OUTPUT: Final = "/Clip_output_0"
PAD: Final = " "
SPEED_MIN: Final = 0.5
SPEED_MAX: Final = 2.0


class VoiceModelChanged(RuntimeError):
    """The installed model lacks what we read out of it; another release of the wheel is needed."""


@dataclass(frozen=True, slots=True)
class RawVoice:
    """`wave` float32 24 kHz in -1..1; `symbols` as read, pads included; `durations` int64."""

    wave: NDArray[np.float32]
    symbols: tuple[str, ...]
    durations: NDArray[np.int64]


@cache
def _lexicon(british: bool) -> G2P:
    """About 0.4 s and 60 MB: one for each accent of English, however many voices use it."""
    return G2P(british=british)


@cache
def _vocabulary() -> dict[str, int]:
    with open(Path(ASSETS) / "vocab.json", encoding="utf-8") as file:
        return json.load(file)


class VoiceModel:
    """One loaded voice. One thread: 100 times faster than real time needs no more, and the order
    of every sum stays the same, so that the samples do."""

    def __init__(self, voice: VoiceFile) -> None:
        """Load. Raises `VoiceNotHere` for a wrong file, `VoiceModelChanged` for a wrong model."""
        self.name = voice.name
        blob = voice.path.read_bytes()
        check_model(voice, blob)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            with_durations(blob), options, providers=["CPUExecutionProvider"]
        )
        self._lexicon = _lexicon(voice.british)

    def phonemes(self, text: str) -> list[str]:
        """The phonemes of each sentence; the list is empty when there is nothing to say."""
        sentences: list[str] = Hibari.split_sentences(readable(text))
        return [found for sentence in sentences if (found := self._read(sentence))]

    def _read(self, sentence: str) -> str:
        try:
            return str(self._lexicon(sentence))
        except (
            LookupError,
            ValueError,
            TypeError,
            ArithmeticError,
            AttributeError,
            RecursionError,
        ):
            # The reader trips over rare figures and signs; a plainer reading beats silence.
            return str(self._lexicon(plain(sentence)))

    def speak(self, phonemes: str, speed: float, seed: int) -> RawVoice:
        """Samples of one piece. The same arguments give the same samples.

        `seed` is for the noise in the voice; `speed` is clipped to 0.5..2.
        """
        vocabulary = _vocabulary()
        known = [symbol for symbol in phonemes if symbol in vocabulary]
        ids = np.array([[0, *(vocabulary[symbol] for symbol in known), 0]], np.int64)
        pace = np.array([min(max(speed, SPEED_MIN), SPEED_MAX)], np.float32)
        outputs: Sequence[Any] = self._session.run(None, {"ids": ids, "speed": pace})
        lh, theta, ln, lr, phi, f0 = (output[0] for output in outputs[:6])
        wave = dsp.synth(lh, theta, ln, lr, phi, f0, np.random.default_rng(seed))
        durations = np.rint(outputs[6].reshape(-1)).astype(np.int64)
        return RawVoice(np.asarray(wave, np.float32), (PAD, *known, PAD), durations)


def with_durations(model: bytes) -> bytes:
    """The model with the phoneme durations as its last output. Raises `VoiceModelChanged`."""
    loaded = onnx.load_model_from_string(model)
    graph = loaded.graph
    if not any(DURATION_OUTPUT in node.output for node in graph.node) or len(graph.output) != 6:
        raise VoiceModelChanged(
            f"the voice model has no {DURATION_OUTPUT} behind its six outputs; "
            "this program was made for hibari-tts 0.2.1"
        )
    graph.output.append(
        onnx.helper.make_tensor_value_info(DURATION_OUTPUT, onnx.TensorProto.FLOAT, None)
    )
    return loaded.SerializeToString()
