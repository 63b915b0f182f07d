"""Which voices are on this machine. Nothing is ever downloaded here.

The `hibari-tts` wheel carries the voice `heart`. Its other voices can be used when their model
files lie in HIBARI_HOME (or the user's cache directory, as the wheel itself has it).
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hibari.voices import ASSETS, VOICES, cache_dir

DEFAULT_VOICE: Final = "heart"


class VoiceNotHere(ValueError):
    """The caller's fault: no such voice, or its file is not on this machine."""


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """A voice's model file; `british` picks the lexicon."""

    name: str
    path: Path
    british: bool


def find_voice(name: str) -> VoiceFile:
    """The voice's file. Raises `VoiceNotHere`, which says what would help."""
    entry: dict[str, Any] | None = VOICES.get(name)
    if entry is None:
        raise VoiceNotHere(f"unknown voice {name!r}; there are {', '.join(sorted(VOICES))}")
    folder = ASSETS if entry.get("bundled") else cache_dir()
    path = Path(os.fspath(folder)) / str(entry["file"])
    if not path.is_file():
        raise VoiceNotHere(
            f"the model of voice {name!r} is not on this machine: put {path.name} into "
            f"{path.parent} (HIBARI_HOME sets the folder); nothing is downloaded by itself"
        )
    return VoiceFile(name, path, bool(entry["british"]))


def voices_here() -> tuple[VoiceFile, ...]:
    """Every voice that can be used on this machine, the bundled one first."""
    here: list[VoiceFile] = []
    for name in sorted(VOICES, key=lambda name: (name != DEFAULT_VOICE, name)):
        try:
            here.append(find_voice(name))
        except VoiceNotHere:
            continue
    return tuple(here)


def check_model(voice: VoiceFile, model: bytes) -> None:
    """Raises `VoiceNotHere` for a file that is not the voice it is named after."""
    expected = str(VOICES[voice.name]["sha256"])
    found = hashlib.sha256(model).hexdigest()
    if found != expected:
        raise VoiceNotHere(
            f"{voice.path} is not the model of voice {voice.name!r}: "
            f"sha256 {found[:12]}..., expected {expected[:12]}..."
        )
