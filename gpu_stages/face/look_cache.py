"""Sculpted looks kept on disk: a worker, and a stage that is started again, starts seconds sooner.

    $XDG_CACHE_HOME/dhsched/looks (~/.cache without it):  <look>-<key>.look
    file:  magic | u32 header length | header, JSON: shapes, SHA-256 of what follows | float32 data

The key is over everything that a baked look depends on: all code of this package, the look itself,
torch's version, and the kind of processor or device, whose last bits differ. So nothing is ever
out of date; what changed is made again beside it. A file appears under its name whole or not at
all, so processes may start at once, and one that is damaged is told, and replaced. Nothing here can
fail a start: without a usable folder, looks are sculpted as before.
"""

import hashlib
import json
import os
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import structlog
import torch
from torch import Tensor

from gpu_stages.face.bake import Baked, bake
from gpu_stages.face.looks import Look

_MAGIC: Final = b"DHSCHED LOOK 1\n"
_LENGTH: Final = struct.Struct("<I")
_PLANES: Final = ("head", "bare", "depth", "back")
_HEADER_BYTES_MAX: Final = 4096
UNUSED_S_MAX: Final = 30 * 86_400.0
"""What nobody has read for so long is removed when another look is written."""

log = structlog.get_logger(__name__)


class BadLookFile(ValueError):
    """The file is not what it should be; it is made again."""


def baked_look(look: Look, device: torch.device) -> Baked:
    """What `bake` gives, bit for bit, from the disk when it is there."""
    path = cache_folder() / f"{look.name}-{key_of(look, device)}.look"
    try:
        planes = _read(path)
        return Baked(*(torch.from_numpy(planes[name]).to(device) for name in _PLANES))
    except FileNotFoundError:
        pass
    except (OSError, BadLookFile) as error:
        log.warning("look_cache_unusable", file=str(path), reason=str(error))
    made = bake(look, device)
    try:
        _write(path, made)
    except OSError as error:
        log.warning("look_not_cached", file=str(path), reason=str(error))
    return made


def cache_folder() -> Path:
    """Where the looks are, by the XDG base directory specification."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~/.cache"))
    return base / "dhsched" / "looks"


def key_of(look: Look, device: torch.device) -> str:
    """Names everything that the baked look depends on."""
    kind = torch.backends.cpu.get_cpu_capability()
    if device.type == "cuda":
        kind = torch.cuda.get_device_name(device)
    parts = (_code_digest(), repr(look), torch.__version__, device.type, kind)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@cache
def _code_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]:
    """The planes by name. Raises `OSError` and `BadLookFile`."""
    data = path.read_bytes()
    at = len(_MAGIC) + _LENGTH.size
    if not data.startswith(_MAGIC) or len(data) < at:
        raise BadLookFile("it is no look")
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    if length > _HEADER_BYTES_MAX:
        raise BadLookFile(f"a header of {length} bytes")
    try:
        header = json.loads(data[at : at + length])
        shapes = [tuple(map(int, header["shapes"][name])) for name in _PLANES]
        digest = str(header["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadLookFile(f"its header cannot be read: {error!r}") from error
    body = memoryview(data)[at + length :]
    if hashlib.sha256(body).hexdigest() != digest:
        raise BadLookFile("its content is damaged")
    if sum(map(_floats, shapes)) * 4 != len(body):
        raise BadLookFile("its shapes do not fit its content")
    with suppress(OSError):
        os.utime(path)  # in use
    return dict(_cut(body, shapes))


def _floats(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))


def _cut(
    body: memoryview, shapes: Sequence[tuple[int, ...]]
) -> Iterator[tuple[str, "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]]:
    at = 0
    for name, shape in zip(_PLANES, shapes, strict=True):
        size = _floats(shape) * 4
        yield name, np.frombuffer(body[at : at + size], "<f4").reshape(shape).astype(np.float32)
        at += size


def _write(path: Path, made: Baked) -> None:
    """Whole under its name, or not there. Raises `OSError`."""
    planes: list[Tensor] = [getattr(made, name) for name in _PLANES]
    body = b"".join(plane.cpu().contiguous().numpy().astype("<f4").tobytes() for plane in planes)
    shapes = {name: list(plane.shape) for name, plane in zip(_PLANES, planes, strict=True)}
    header = json.dumps({"shapes": shapes, "sha256": hashlib.sha256(body).hexdigest()}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".look-", delete=False) as file:
        try:
            file.write(_MAGIC + _LENGTH.pack(len(header)) + header + body)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(file.name)
            raise
    _forget_unused(path.parent)


def _forget_unused(folder: Path) -> None:
    before_s = time.time() - UNUSED_S_MAX
    for path in (*folder.glob("*.look"), *folder.glob(".look-*")):
        with suppress(OSError):
            if path.stat().st_mtime < before_s:
                path.unlink()
