"""Compares a replay with an earlier one: bit by bit from hashes, and in decibels from the media.

The hashes say whether anything differs. How much it differs needs both runs' sound and film: the
signal-to-noise ratio of the sound, and the picture's peak signal-to-noise ratio as decoded.
"""

import math
import tempfile
import wave
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, cast

import av
import numpy as np
from numpy.typing import NDArray

from dhsched.command_line import USAGE_STATUS
from dhsched.offline.film import FRAME_DIGEST_BYTES
from dhsched.offline.manifest import (
    BadManifest,
    Difference,
    Manifest,
    read_manifest,
    same_media,
    segment_differences,
    setting_differences,
)
from dhsched.offline.replay import ReplayRequest, replay
from dhsched.output import CommandFailed, Output
from schemas.media import TICK_SAMPLES

FRAME_BYTES: Final = 2 * FRAME_DIGEST_BYTES
SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Run:
    """A replay that was made: its manifest, and the folder its files lie in."""

    manifest: Manifest
    folder: Path

    def file(self, what: str) -> Path | None:
        """One of its files, where it is still there."""
        name = self.manifest.files.get(what)
        path = None if name is None else self.folder / name
        return path if path is not None and path.is_file() else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of it. Ratios in decibels; None where there is nothing to compare or to measure,
    infinite where it is the same."""

    same: bool
    differences: tuple[Difference, ...]
    because: tuple[Difference, ...]
    first_frame_of_sound: int | None = None
    first_sample: int | None = None
    first_picture: int | None = None
    snr_db: float | None = None
    psnr_db: float | None = None
    psnr_db_min: float | None = None

    def document(self) -> dict[str, Any]:
        """For machines; JSON has no infinity."""
        return {
            "same": self.same,
            "differences": [_row(one) for one in self.differences],
            "because": [_row(one) for one in self.because],
            "first_frame_of_sound": self.first_frame_of_sound,
            "first_sample": self.first_sample,
            "first_picture": self.first_picture,
            "snr_db": _finite(self.snr_db),
            "psnr_db": _finite(self.psnr_db),
            "psnr_db_min": _finite(self.psnr_db_min),
        }


def load_run(path: Path) -> Run:
    """Raises CommandFailed."""
    try:
        return Run(read_manifest(path.read_text()), path.parent)
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}", USAGE_STATUS) from error
    except (BadManifest, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path} is no manifest: {error}", USAGE_STATUS) from error


def verify_replay(
    request: ReplayRequest, path: Path, output: Output, *, timing_given: bool
) -> None:
    """Replay what the manifest says and compare. Raises CommandFailed when they differ."""
    before = load_run(path)
    settings = before.manifest.settings
    request = replace(
        request,
        live_id=before.manifest.live_id,
        timing=request.timing if timing_given else settings.get("timing", request.timing),
        sound_only=request.sound_only or before.manifest.picture is None,
    )
    with tempfile.TemporaryDirectory(prefix="dhsched-verify-") as folder:
        kept = request.out is not None
        made = replay(replace(request, out=request.out or Path(folder)), output.quiet())
        after = load_run(made.jobs[0].files.manifest)
        verdict = compare(before, after)
    output.result(
        {**verdict.document(), "manifest": str(path), "kept": kept},
        _told(verdict, before.manifest),
    )
    if not verdict.same:
        raise CommandFailed(f"the replay differs from {path}")


def compare(before: Run, after: Run) -> Verdict:
    """Everything that can be said of two runs from what is there of them."""
    because = tuple(setting_differences(before.manifest, after.manifest))
    if same_media(before.manifest, after.manifest):
        return Verdict(True, (), because)
    differences = segment_differences(before.manifest, after.manifest)
    for name in ("sound", "picture"):
        old, new = getattr(before.manifest, name), getattr(after.manifest, name)
        if old != new and None not in (old, new):
            differences.append(Difference(name, f"{old.length} before, {new.length} now"))
    sound_at, picture_at = first_frames(before.file("frames"), after.file("frames"))
    psnr_db, psnr_db_min = _psnr(before.file("film"), after.file("film"))
    return Verdict(
        False,
        tuple(differences),
        because,
        first_frame_of_sound=sound_at,
        first_sample=_first_sample(before.file("sound"), after.file("sound"), sound_at),
        first_picture=picture_at if before.manifest.picture and after.manifest.picture else None,
        snr_db=_snr(before.file("sound"), after.file("sound")),
        psnr_db=psnr_db,
        psnr_db_min=psnr_db_min,
    )


def first_frames(before: Path | None, after: Path | None) -> tuple[int | None, int | None]:
    """The first ticks whose sound, and whose picture, is not the same; None where all are."""
    if before is None or after is None:
        return None, None
    sound = picture = None
    with before.open("rb") as old_file, after.open("rb") as new_file:
        frame = 0
        while (old := old_file.read(FRAME_BYTES)) and (new := new_file.read(FRAME_BYTES)):
            if sound is None and old[:FRAME_DIGEST_BYTES] != new[:FRAME_DIGEST_BYTES]:
                sound = frame
            if picture is None and old[FRAME_DIGEST_BYTES:] != new[FRAME_DIGEST_BYTES:]:
                picture = frame
            frame += 1
    return sound, picture


def _blocks(path: Path, from_sample: int = 0) -> Iterator[NDArray[np.int64]]:
    with closing(wave.open(str(path), "rb")) as sound:
        sound.setpos(min(from_sample, sound.getnframes()))
        while block := sound.readframes(TICK_SAMPLES * 250):
            yield np.frombuffer(block, "<i2").astype(np.int64)


def _first_sample(before: Path | None, after: Path | None, frame: int | None) -> int | None:
    if before is None or after is None or frame is None:
        return None
    at = frame * TICK_SAMPLES
    for old, new in zip(_blocks(before, at), _blocks(after, at), strict=False):
        shorter = min(len(old), len(new))
        unequal = np.flatnonzero(old[:shorter] != new[:shorter])
        if len(unequal):
            return at + int(unequal[0])
        at += shorter
    return None


def _snr(before: Path | None, after: Path | None) -> float | None:
    """What one lacks at its end counts as silence."""
    if before is None or after is None:
        return None
    signal = noise = 0
    nothing = np.zeros(0, np.int64)
    for old, new in zip_longest(_blocks(before), _blocks(after), fillvalue=nothing):
        length = max(len(old), len(new))
        old, new = (np.pad(one, (0, length - len(one))) for one in (old, new))
        signal += int((old * old).sum())
        noise += int(((old - new) ** 2).sum())
    return _decibels(signal, noise)


def _psnr(before: Path | None, after: Path | None) -> tuple[float | None, float | None]:
    """(mean, lowest) of the pictures that both have; of another size there is none to compare."""
    if before is None or after is None:
        return None, None
    ratios: list[float] = []
    for old, new in zip(pictures(before), pictures(after), strict=False):
        if old.shape != new.shape:
            return None, None
        error = float(((old.astype(np.int32) - new) ** 2).mean())
        ratios.append(math.inf if error == 0 else 10 * math.log10(255**2 / error))
    finite = [one for one in ratios if math.isfinite(one)]
    if not finite:
        return (math.inf, math.inf) if ratios else (None, None)
    return sum(finite) / len(finite), min(finite)


def pictures(path: Path) -> Iterator[NDArray[np.uint8]]:
    """The decoded pictures' brightness, uint8 [height, width]."""
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            gray = frame.to_ndarray(format="gray")
            yield cast("NDArray[np.uint8]", gray)


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _finite(value: float | None) -> float | None:
    return round(value, 2) if value is not None and math.isfinite(value) else None


def _row(one: Difference) -> dict[str, Any]:
    return {"what": one.what, "segment": one.segment, "detail": one.detail, **one.data}


def _told(verdict: Verdict, before: Manifest) -> str:
    if verdict.same:
        return (
            f"the same: {before.sound.length} samples"
            + (f", {before.picture.length} pictures" if before.picture else "")
            + f", {len(before.segments)} segments"
        )
    lines = ["the replay is not the same:"]
    for one in verdict.differences[:SHOWN_MAX]:
        where = "" if one.segment is None else f"segment {one.segment}, "
        lines.append(f"  {where}{one.what}: {one.detail}")
    if len(verdict.differences) > SHOWN_MAX:
        lines.append(f"  and {len(verdict.differences) - SHOWN_MAX} more")
    measured = {
        "first sample that differs": verdict.first_sample,
        "first picture that differs": verdict.first_picture,
        "sound, signal-to-noise (dB)": _finite(verdict.snr_db),
        "picture, mean PSNR (dB)": _finite(verdict.psnr_db),
        "picture, lowest PSNR (dB)": _finite(verdict.psnr_db_min),
    }
    lines += [f"  {name}: {value}" for name, value in measured.items() if value is not None]
    if verdict.because:
        lines.append("it was made otherwise:")
        lines += [f"  {one.what}: {one.detail}" for one in verdict.because]
    return "\n".join(lines)
