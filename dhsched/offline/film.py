"""One live as it is heard and seen: WAV, MP4, subtitles, and the hashes of all that.

Everything is written beside its final name and put into place at the end, the manifest last: where
there is a manifest, everything it names is whole. Memory holds a few segments, not the film.
"""

import contextlib
import os
import secrets
import wave
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from dhsched.offline.manifest import SegmentMade, TrackMade
from dhsched.offline.subtitles import HEADER, Spoken, cues_of
from dhsched.offline.word_times import words_of
from gpu_stages.encode.mute import Muter
from gpu_stages.header import Header, MessageKind
from gpu_stages.runtime_contract import Segment
from gpu_stages.speech.voice_parts import PHONEME_DTYPE, read_voice_parts
from gpu_stages.stage import Part
from rtc_output.mp4 import Mp4Writer
from schemas.media import SAMPLE_RATE_HZ, TICK_MS, TICK_SAMPLES, MediaTick, TickFlag
from schemas.text_record import TEXT_BYTES_MAX

DIGEST_BYTES: Final = 16
FRAME_DIGEST_BYTES: Final = 8
REMEMBERED_FRAMES: Final = 4_096
"""How far back a later owner's repeated ticks are compared: above what a checkpoint is behind."""

_CHAR_BITS: Final = TEXT_BYTES_MAX.bit_length()


def _digest() -> Any:
    return blake2b(digest_size=DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class FilmFiles:
    """Where one live's outputs go. `film` is None without pictures."""

    film: Path | None
    sound: Path
    subtitles: Path
    events: Path
    frames: Path
    manifest: Path

    @classmethod
    def beside(cls, base: Path, *, pictures: bool) -> "FilmFiles":
        """`base` is the path without its suffix."""

        def named(suffix: str) -> Path:
            return base.with_name(base.name + suffix)

        return cls(
            named(".mp4") if pictures else None,
            named(".wav"),
            named(".vtt"),
            named(".events.jsonl"),
            named(".frames"),
            named(".manifest.json"),
        )

    def all(self) -> list[Path]:
        """Every file, the manifest last."""
        film = [] if self.film is None else [self.film]
        return [*film, self.sound, self.subtitles, self.events, self.frames, self.manifest]

    def names(self) -> dict[str, str]:
        """For the manifest: by what they are."""
        made = {
            "sound": self.sound,
            "subtitles": self.subtitles,
            "events": self.events,
            "frames": self.frames,
        }
        if self.film is not None:
            made = {"film": self.film, **made}
        return {what: path.name for what, path in made.items()}


class PartFile:
    """A file that gets its name when it is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        self.file: BinaryIO = self._part.open("xb")

    def commit(self) -> None:
        """Durable, under the final name."""
        if not self.file.closed:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
        self._part.replace(self.path)

    def abort(self) -> None:
        """Leave nothing; harmless after `commit`."""
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            self._part.unlink(missing_ok=True)


@dataclass(slots=True)
class _Said:
    """A segment that was fed. `next_sample`: all below it was heard."""

    segment_id: int
    text: str
    utterance: int
    first_frame: int = -1
    frames: int = 0
    next_sample: int = 0
    ended: str = ""
    owners: list[int] = field(default_factory=list[int])
    sound: Any = field(default_factory=_digest)
    picture: Any = field(default_factory=_digest)
    phonemes: dict[tuple[int, int, int], Any] = field(default_factory=dict[Any, Any])


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A tick on its way to the encoder: its samples, and the digest of its picture."""

    pcm: NDArray[np.int16]
    picture_digest: bytes


class Film:
    """Implements `replay_media.Heard`; the taps of every owner's stages lead here."""

    def __init__(self, files: FilmFiles, *, pictures: bool) -> None:
        """Raises OSError, and RecordingFailed for the film."""
        self.files = files
        self.pictures = pictures
        self.next_frame = 0
        self.segments: list[SegmentMade] = []
        self.repeated_frames = 0
        self.repeated_different = 0
        self._said: dict[int, _Said] = {}
        self._over: set[int] = set()
        self._drawn: dict[tuple[str, int, int], _Drawn] = {}
        self._muter = Muter()
        self._sound_hash, self._picture_hash = _digest(), _digest()
        self._recent: dict[int, bytes] = {}
        self._parts: list[PartFile] = []
        self._mp4: Mp4Writer | None = None
        self._wave: wave.Wave_write | None = None
        try:
            self._sound = self._part(files.sound)
            self._subtitles = self._part(files.subtitles)
            self._events = self._part(files.events)
            self._frames = self._part(files.frames)
            self._wave = wave.Wave_write(self._sound.file)
            self._wave.setparams((1, 2, SAMPLE_RATE_HZ, 0, "NONE", "not compressed"))
            self._subtitles.file.write(HEADER.encode())
            if files.film is not None:
                self._mp4 = Mp4Writer(files.film)
        except BaseException:
            self.abort()
            raise

    def _part(self, path: Path) -> PartFile:
        part = PartFile(path)
        self._parts.append(part)
        return part

    # -- what goes by between the stages

    def fed(self, segment: Segment) -> None:
        """A segment goes in, for the first time or again."""
        if segment.segment_id not in self._said and segment.segment_id not in self._over:
            self._said[segment.segment_id] = _Said(
                segment.segment_id, segment.text, segment.utterance
            )

    def voiced(self, header: Header, parts: Sequence[Part]) -> None:
        """Sound was made of a segment; its phonemes say when."""
        said = self._said.get(header.segment_id)
        if header.kind is not MessageKind.SEGMENT_VOICE or said is None or len(parts) < 3:
            return
        for row in read_voice_parts([_view(part) for part in parts]).phonemes:
            said.phonemes[int(row["start"]), int(row["end"]), int(row["phoneme"])] = row

    def drawn(self, owner: str, header: Header, parts: Sequence[Part]) -> None:
        """A tick goes to the encoder."""
        if header.kind is not MessageKind.TICK_PICTURE:
            return
        pcm = np.frombuffer(_view(parts[0]), np.int16).copy()
        picture = _view(parts[1]) if self.pictures and len(parts) > 1 else memoryview(b"")
        digest = blake2b(picture, digest_size=FRAME_DIGEST_BYTES).digest() if picture else b""
        self._drawn[owner, header.binding, header.frame_index] = _Drawn(pcm, digest)

    # -- what is heard

    def hear(self, owner: str, tick: MediaTick) -> None:
        """A tick went out. Raises OSError and RecordingFailed."""
        drawn = self._drawn.pop((owner, tick.binding, tick.frame_index), None)
        pcm = np.zeros(TICK_SAMPLES, np.int16) if drawn is None else drawn.pcm
        picture = b"" if drawn is None else drawn.picture_digest
        muted = bool(tick.flags & TickFlag.MUTED)
        if tick.segment_id and not muted:
            self._speak(tick, pcm, picture)
        if tick.frame_index < self.next_frame:
            self._hear_again(tick, pcm)
            return
        here = (owner, tick.binding)
        self._drawn = {key: one for key, one in self._drawn.items() if key[:2] == here}
        self.next_frame = tick.frame_index + 1
        self._remember(tick.frame_index, pcm)
        heard = self._muter.step(pcm, muted=muted).astype("<i2").tobytes()
        self._sound_hash.update(heard)
        if self._wave is not None:
            self._wave.writeframesraw(heard)
        self._picture_hash.update(picture)
        sound = blake2b(heard, digest_size=FRAME_DIGEST_BYTES).digest()
        self._frames.file.write(sound + picture.ljust(FRAME_DIGEST_BYTES, b"\0"))
        if self._mp4 is not None:
            self._mp4.add(tick)

    def _hear_again(self, tick: MediaTick, pcm: NDArray[np.int16]) -> None:
        """A later owner began before where the last one ended: it must make the same sound."""
        self.repeated_frames += 1
        before = self._recent.get(tick.frame_index)
        if before is not None and before != _short(pcm):
            self.repeated_different += 1

    def _remember(self, frame: int, pcm: NDArray[np.int16]) -> None:
        self._recent[frame] = _short(pcm)
        self._recent.pop(frame - REMEMBERED_FRAMES, None)

    def _speak(self, tick: MediaTick, pcm: NDArray[np.int16], picture: bytes) -> None:
        said = self._said.get(tick.segment_id)
        if said is None:
            return
        self._end_others(tick.segment_id)
        end = tick.sample_start + tick.speech_samples
        if said.first_frame < 0:
            said.first_frame = tick.frame_index
        if tick.epoch not in said.owners:
            said.owners.append(tick.epoch)
        new = pcm[max(0, said.next_sample - tick.sample_start) : tick.speech_samples]
        if len(new) or said.frames == 0:
            said.sound.update(new.astype("<i2").tobytes())
            said.picture.update(picture)
            said.frames += 1
        said.next_sample = max(said.next_sample, end)
        if tick.flags & TickFlag.LAST_OF_SEGMENT:
            self._end(said, "whole")

    def _end_others(self, segment_id: int) -> None:
        """What stood before the segment that is heard now is over."""
        for said in tuple(self._said.values()):
            if said.segment_id == segment_id:
                return
            if said.first_frame >= 0:
                self._end(said, "cut")
            else:
                self._over.add(said.segment_id)
                del self._said[said.segment_id]

    def _end(self, said: _Said, how: str) -> None:
        del self._said[said.segment_id]
        self._over.add(said.segment_id)
        place = said.segment_id - 1
        self.segments.append(
            SegmentMade(
                segment_id=said.segment_id,
                offset=place >> _CHAR_BITS,
                char=place & ((1 << _CHAR_BITS) - 1),
                text=said.text,
                utterance=said.utterance,
                first_frame=said.first_frame,
                frames=said.frames,
                samples=said.next_sample,
                ends=how,
                owners=tuple(said.owners),
                sound=said.sound.hexdigest(),
                picture=said.picture.hexdigest() if self.pictures else None,
            )
        )
        rows = sorted(said.phonemes)
        table = np.array([said.phonemes[key] for key in rows], PHONEME_DTYPE)
        spoken = Spoken(said.first_frame * TICK_MS, said.next_sample, words_of(said.text, table))
        self._subtitles.file.write(cues_of(spoken).encode())

    def interrupted(self, utterance: int) -> None:
        """What was being said of a lower utterance is cut off here."""
        for said in tuple(self._said.values()):
            if said.utterance >= utterance:
                continue
            if said.first_frame >= 0:
                self._end(said, "interrupted")
            else:
                self._over.add(said.segment_id)
                del self._said[said.segment_id]

    def event(self, line: str) -> None:
        """One line of the events' file."""
        self._events.file.write(line.encode() + b"\n")

    # -- the end

    def finish_media(self) -> tuple[TrackMade, TrackMade | None]:
        """Put everything but the manifest into place. Raises OSError and RecordingFailed."""
        for said in tuple(self._said.values()):
            if said.first_frame >= 0:
                self._end(said, "unfinished")
        if self._wave is not None:
            self._wave.close()
        if self._mp4 is not None:
            self._mp4.finish()
        for part in self._parts:
            part.commit()
        frames = self.next_frame
        picture = TrackMade(frames, self._picture_hash.hexdigest()) if self.pictures else None
        return TrackMade(frames * TICK_SAMPLES, self._sound_hash.hexdigest()), picture

    def write_manifest(self, text: str) -> None:
        """The last file: with it the replay counts as done. Raises OSError."""
        part = self._part(self.files.manifest)
        part.file.write(text.encode())
        part.commit()

    def abort(self) -> None:
        """Leave no file; harmless after the end."""
        if self._mp4 is not None:
            self._mp4.abort()
        if self._wave is not None:
            with contextlib.suppress(OSError, ValueError):
                self._wave.close()
        for part in self._parts:
            part.abort()


def _view(part: Part) -> memoryview:
    return memoryview(part).cast("B")  # type: ignore[arg-type]


def _short(pcm: NDArray[np.int16]) -> bytes:
    return blake2b(pcm.tobytes(), digest_size=FRAME_DIGEST_BYTES).digest()
