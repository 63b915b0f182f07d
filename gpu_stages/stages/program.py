"""A torch program exported to a file (`torch.export.save`, `.pt2`), checked against a signature.

A signature names the tensors that go in and come out, in the order of the program's arguments:

    face = { shape = ["batch", 24], dtype = "float32" }

The first dimension is always "batch". What the file says of itself is compared with the signature
when it is loaded, and one batch of zeros is run, so that a mistake stops the start with its name
and not the first live.
"""

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.export.pt2_archive._package import load_pt2

BATCH: Final = "batch"
ROWS_MAX: Final = 4096
_GRAPH_FILE: Final = "models/model.json"
_VERSION_WORDS: Final = ("schema version", "archive version", "opset version")
_OPERATOR_WORDS: Final = ("operator", "opoverload", "no attribute", "custom op", "torch.ops")


class BadProgram(ValueError):
    """The file, or the signature that is declared for it, is not right. The message says what."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor: its name, the sizes behind the batch dimension, and its dtype."""

    name: str
    sizes: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        shape = ", ".join((BATCH, *map(str, self.sizes)))
        return f"{self.name}: {_name(self.dtype)} [{shape}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """What is declared of a program."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def read_signature(inputs: object, outputs: object) -> Signature:
    """The signature of two TOML tables. Raises `BadProgram`, naming the entry that is wrong."""
    return Signature(_specs("inputs", inputs), _specs("outputs", outputs))


def _specs(table: str, given: object) -> tuple[TensorSpec, ...]:
    if not isinstance(given, Mapping) or not given:
        raise BadProgram(f"`{table}` must be a table of tensors with their shape and dtype")
    entries = cast(Mapping[str, object], given)
    return tuple(_spec(f"{table}.{name}", name, entry) for name, entry in entries.items())


def _spec(where: str, name: str, given: object) -> TensorSpec:
    entry = cast(Mapping[str, object], given) if isinstance(given, Mapping) else {}
    shape, dtype = entry.get("shape"), entry.get("dtype")
    if set(entry) != {"shape", "dtype"} or not isinstance(shape, list):
        raise BadProgram(f'{where} must be {{ shape = ["{BATCH}", ...], dtype = "..." }}')
    sizes = cast(list[object], shape)
    if not sizes or sizes[0] != BATCH:
        raise BadProgram(f'{where}: the first dimension must be "{BATCH}", not {sizes[:1]}')
    whole = tuple(size for size in sizes[1:] if isinstance(size, int) and size > 0)
    if len(whole) != len(sizes) - 1:
        raise BadProgram(f"{where}: sizes behind the batch are whole numbers, not {sizes[1:]}")
    kind = getattr(torch, str(dtype), None)
    if not isinstance(kind, torch.dtype):
        raise BadProgram(f"{where}: {dtype!r} is no dtype of torch, such as float32 or uint8")
    return TensorSpec(name, whole, kind)


class Program:
    """A loaded program on one device. One thread at a time."""

    def __init__(self, path: Path, signature: Signature, device: str) -> None:
        """Load and check. Raises `BadProgram`."""
        self.path = path
        self.signature = signature
        self._device = torch.device(device)
        exported = _load(path)
        try:
            self._rows_min, self._rows_max = _check_inputs(exported, signature)
            if self._device.type != "cpu":
                from torch.export.passes import move_to_device_pass

                exported = move_to_device_pass(exported, self._device)
            self._module: Any = exported.module()
            self._try_out()
        except BadProgram as error:
            raise BadProgram(f"{path}: {error}") from error

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Outputs by name, on the program's device; every tensor [batch, ...].

        Batches larger than the program takes go in parts, smaller ones are filled up.
        """
        rows = min(len(tensor) for tensor in inputs.values())
        done: list[dict[str, Tensor]] = []
        with torch.inference_mode():
            for at in range(0, rows, self._rows_max):
                part = [
                    inputs[spec.name][at : at + self._rows_max].to(self._device, spec.dtype)
                    for spec in self.signature.inputs
                ]
                done.append(self._run(part))
        if len(done) == 1:
            return done[0]
        return {name: torch.cat([part[name] for part in done]) for name in done[0]}

    def _run(self, part: list[Tensor]) -> dict[str, Tensor]:
        rows = len(part[0])
        if missing := max(0, self._rows_min - rows):
            part = [
                torch.cat([tensor, tensor[-1:].repeat_interleave(missing, 0)]) for tensor in part
            ]
        got = _named(self._module(*part), self.signature.outputs)
        return {name: tensor[:rows] for name, tensor in got.items()}

    def _try_out(self) -> None:
        """One batch of zeros: what comes out must be what is declared."""
        rows = max(1, self._rows_min)
        zeros = {s.name: torch.zeros(rows, *s.sizes, dtype=s.dtype) for s in self.signature.inputs}
        try:
            got = self(zeros)
        except BadProgram:
            raise
        except Exception as error:
            raise BadProgram(f"it raises for a batch of zeros: {_first_line(error)}") from error
        for spec in self.signature.outputs:
            tensor = got[spec.name]
            if tensor.dtype != spec.dtype or tuple(tensor.shape) != (rows, *spec.sizes):
                raise BadProgram(f"output {spec} is declared; it gives {_said(spec.name, tensor)}")


def _named(got: object, specs: Sequence[TensorSpec]) -> dict[str, Tensor]:
    """By name when the program returns a dict, else in the declared order."""
    declared = [spec.name for spec in specs]
    if isinstance(got, Mapping):
        named = dict(cast(Mapping[str, Tensor], got))
        if sorted(named) != sorted(declared):
            raise BadProgram(f"it returns {', '.join(named)}; declared are {', '.join(declared)}")
        return named
    tensors = list(cast(Sequence[Tensor], got)) if isinstance(got, tuple | list) else [got]
    if len(tensors) != len(specs) or not all(isinstance(t, Tensor) for t in tensors):
        raise BadProgram(
            f"it returns {len(tensors)} values; declared are {len(specs)} tensors:"
            f" {', '.join(declared)}"
        )
    return dict(zip(declared, cast(list[Tensor], tensors), strict=True))


def _load(path: Path) -> Any:
    if not path.is_file():
        raise BadProgram(f"{path}: no such file")
    made_by = _exporting_torch(path)
    try:
        # Not `torch.export.load`: that logs what is wrong and raises something general instead.
        return load_pt2(str(path)).exported_programs["model"]
    except Exception as error:
        raise BadProgram(f"{path}: {_why(error, made_by)}") from error


def _exporting_torch(path: Path) -> str:
    """The version of torch that wrote the file. Raises `BadProgram` when it is no such file."""
    graph = b""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(_GRAPH_FILE):
                    graph = archive.read(name)
    if not graph:
        raise BadProgram(
            f"{path} is no exported program: `torch.export.save` of torch 2.8 or newer writes one,"
            " `torch.save` and `torch.jit.save` do not"
        )
    found = re.search(rb'"torch_version": "([^"]*)"', graph)
    return found.group(1).decode(errors="replace") if found else "an unknown version"


def _why(error: Exception, made_by: str) -> str:
    """What a loading error means for whoever wrote the file."""
    text = f"{type(error).__name__}: {_first_line(error)}"
    chain = " ".join(str(each) for each in _causes(error)).lower()
    if any(word in chain for word in _VERSION_WORDS):
        return (
            f"it was exported by torch {made_by} in a format that torch {torch.__version__} does"
            f" not read; export it again with this version ({text})"
        )
    if any(word in chain for word in _OPERATOR_WORDS):
        return (
            "it calls an operator that this torch does not have; import the package that brings"
            f" it, or export without it ({text})"
        )
    return f"it was exported by torch {made_by}; torch {torch.__version__} cannot load it ({text})"


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:300]


def _check_inputs(exported: Any, signature: Signature) -> tuple[int, int]:
    """Compare names, shapes and dtypes; returns the fewest and the most rows that it takes."""
    names: tuple[str, ...] = tuple(map(str, exported.graph_signature.user_inputs))
    found = {
        node.name: node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder"
    }
    declared = [spec.name for spec in signature.inputs]
    if list(names) != declared:
        raise BadProgram(f"it takes {', '.join(names)}; declared are {', '.join(declared)}")
    least, most = 1, ROWS_MAX
    for spec in signature.inputs:
        tensor = found[spec.name]
        if not isinstance(tensor, Tensor):
            raise BadProgram(f"input {spec.name} is no tensor but {type(tensor).__name__}")
        sizes: tuple[Any, ...] = tuple(tensor.shape)  # numbers, or symbols where any size goes
        fits = len(sizes) == 1 + len(spec.sizes) and all(
            isinstance(size, int) and size == wanted
            for size, wanted in zip(sizes[1:], spec.sizes, strict=False)
        )
        if not fits or tensor.dtype != spec.dtype:
            raise BadProgram(f"input {spec} is declared; it takes {_said(spec.name, tensor)}")
        low, high = _rows(sizes[0], exported)
        least, most = max(least, low), min(most, high)
    return least, most


def _rows(size: Any, exported: Any) -> tuple[int, int]:
    """The range of a batch dimension: one number when the program was exported for just that."""
    if isinstance(size, int):
        return size, size
    bounds: Any = exported.range_constraints.get(size.node.expr)
    if bounds is None:
        return 1, ROWS_MAX
    high = bounds.upper
    return max(1, int(bounds.lower)), int(high) if high < ROWS_MAX else ROWS_MAX


def _said(name: str, tensor: Tensor) -> str:
    found: tuple[Any, ...] = tuple(tensor.shape)
    sizes = ", ".join(str(size) if isinstance(size, int) else "any" for size in found)
    return f"{name}: {_name(tensor.dtype)} [{sizes}]"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
