"""Two films as one: picture beside picture, each with its name, and the sound of one of them."""

from collections.abc import Iterator
from contextlib import ExitStack
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, cast

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from numpy.typing import NDArray

from dhsched.command_line import USAGE_STATUS
from dhsched.offline.film import PartFile
from dhsched.offline.lettering import label
from dhsched.offline.manifest import BadManifest, read_manifest
from dhsched.output import CommandFailed, Output
from schemas.media import FRAMES_PER_S

MANIFEST_SUFFIX: Final = ".manifest.json"
GAP_PX: Final = 4
QUALITY: Final = "20"
INK, PAPER = 235, 40

Picture = NDArray[np.uint8]


def put_side_by_side(
    left: Path, right: Path, out: Path, output: Output, *, sound_of: int, force: bool = False
) -> None:
    """Write the film of both. Where one is shorter its last picture stays, darkened.

    Raises CommandFailed; nothing is left under the final name then.
    """
    if out.exists() and not force:
        raise CommandFailed(f"{out} exists; --force replaces it")
    if not out.resolve().parent.is_dir():
        raise CommandFailed(f"the folder {out.resolve().parent} does not exist", USAGE_STATUS)
    films = [film_of(left), film_of(right)]
    names = _names(films)
    try:
        part = PartFile(out)
    except OSError as error:
        raise CommandFailed(f"cannot write {out}: {error.strerror}") from error
    try:
        pictures = _write(films, names, part, sound_of)
        part.commit()
    except (OSError, FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandFailed(f"cannot put them side by side: {reason}") from error
    finally:
        part.abort()
    seconds = pictures / FRAMES_PER_S
    output.result(
        {"film": str(out), "seconds": seconds, "films": [str(film) for film in films]},
        f"{names[0]} and {names[1]}, {seconds:.1f} s, in {out}",
    )


def film_of(path: Path) -> Path:
    """The film itself, or the one that a manifest names. Raises CommandFailed."""
    film = path
    if path.name.endswith(MANIFEST_SUFFIX):
        try:
            named = read_manifest(path.read_text()).files.get("film")
        except (OSError, BadManifest, UnicodeDecodeError) as error:
            raise CommandFailed(f"{path} is no manifest: {error}", USAGE_STATUS) from error
        if named is None:
            raise CommandFailed(f"{path} is of a replay without pictures", USAGE_STATUS)
        film = path.parent / named
    if not film.is_file():
        raise CommandFailed(f"there is no film {film}", USAGE_STATUS)
    return film


def _names(films: list[Path]) -> list[str]:
    """The files' names; with their folders where they are the same."""
    if films[0].stem != films[1].stem:
        return [film.stem for film in films]
    return [f"{film.resolve().parent.name}/{film.stem}" for film in films]


def _write(films: list[Path], names: list[str], part: PartFile, sound_of: int) -> int:
    with ExitStack() as stack:
        inner = [stack.enter_context(av.open(str(film))) for film in films]
        sizes = [_size(one, film) for one, film in zip(inner, films, strict=True)]
        outer = stack.enter_context(
            av.open(part.file, "w", format="mp4", options={"movflags": "+faststart"})
        )
        height = max(height for _, height in sizes)
        strips = [_strip(name, width) for name, (width, _) in zip(names, sizes, strict=True)]
        full = height + strips[0].shape[0]
        width = sum(width for width, _ in sizes) + GAP_PX
        video = outer.add_stream("libx264", rate=FRAMES_PER_S)
        video.width, video.height = width + width % 2, full + full % 2
        video.pix_fmt = "yuv420p"
        video.options = {"crf": QUALITY, "preset": "veryfast", "threads": "1"}
        sound = stack.enter_context(av.open(str(films[sound_of])))
        audio = outer.add_stream_from_template(sound.streams.audio[0])
        count = 0
        last: tuple[Any, ...] = ()
        for both in zip_longest(*(_pictures(one) for one in inner)):
            both = tuple(both)
            if count == 0 and any(one is None for one in both):
                raise ValueError("a film without pictures")
            last = _held(both, last or both)
            canvas = _canvas(last, both, strips, (video.height, video.width))
            frame = av.VideoFrame.from_ndarray(canvas, format="rgb24")
            frame.pts, frame.time_base = count, Fraction(1, FRAMES_PER_S)
            outer.mux(video.encode(frame))
            count += 1
        outer.mux(video.encode(None))
        for packet in sound.demux(sound.streams.audio[0]):
            if packet.pts is not None:
                packet.stream = audio
                outer.mux(packet)
    return count


def _held(both: tuple[Any, ...], last: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(before if now is None else now for now, before in zip(both, last, strict=True))


def _canvas(
    pictures: tuple[Any, ...], both: tuple[Any, ...], strips: list[Picture], size: tuple[int, int]
) -> Picture:
    canvas = np.zeros((*size, 3), np.uint8)
    left = 0
    for picture, now, strip in zip(pictures, both, strips, strict=True):
        height, width = picture.shape[:2]
        top = strip.shape[0]
        canvas[:top, left : left + width] = strip[..., None]
        shown = picture if now is not None else picture // 3
        canvas[top : top + height, left : left + width] = shown
        left += width + GAP_PX
    return canvas


def _strip(name: str, width: int) -> Picture:
    dots = label(name, width=width)
    return np.where(dots, INK, PAPER).astype(np.uint8)


def _size(container: InputContainer, film: Path) -> tuple[int, int]:
    if not container.streams.video or not container.streams.audio:
        raise ValueError(f"{film} has not both picture and sound")
    stream = container.streams.video[0]
    return stream.width, stream.height


def _pictures(container: InputContainer) -> Iterator[Picture]:
    for frame in container.decode(video=0):
        yield cast(Picture, frame.to_ndarray(format="rgb24"))
