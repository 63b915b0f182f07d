"""The stages' TOML: which class serves each stage, where, and how large the rings are.

    live_slots = 16              # lives of this worker at once
    [video]
    width_px_max = 512           # what a live may ask for; sizes the picture and media slots
    height_px_max = 512
    [speech]                     # likewise [motion], [render], [encode]; every key is optional
    class = "gpu_stages.stages.speech:SpeechStage"   # or "path/to/file.py:Class", from this file on
    device = "cuda:0"            # default: the worker's --device
    batch_max = 8                # default: the class's own
    wait_us_max = 2000           # default: the class's own
    threads = 1                  # OMP, MKL, torch: set before any of them is loaded
    nice = 0                     # niceness of the process
    ready_s_max = 120            # how long loading may take
    [speech.settings]            # handed to the class's load()
    [render]                     # render and motion: an exported torch program in place of a class
    program = "face.pt2"
    [render.inputs]              # its tensors, in the order of its arguments
    face = { shape = ["batch", 24], dtype = "float32" }
    [render.outputs]
    picture = { shape = ["batch", 256, 256, 3], dtype = "uint8" }
    [rings]
    voice_slots = 16             # slots of each ring, and the payload of a voice slot
    voice_bytes = 2097152

A key that is not known here is refused by name, so that a misspelt one cannot be silently without
effect. Without a file the bundled stages run with their defaults.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from gpu_stages.header import PARTS_MAX
from gpu_stages.memory import CACHE_LINE_BYTES, round_up
from gpu_stages.ring import RingSpec
from schemas.media import TICK_SAMPLES

STAGE_NAMES: Final = ("speech", "motion", "render", "encode")
PROGRAM_CLASSES: Final = {
    "motion": "gpu_stages.stages.exported:ExportedMotion",
    "render": "gpu_stages.stages.exported:ExportedRender",
}
"""What runs an exported program; the other stages keep state that a program cannot."""

CREDIT_STAGE: Final = "motion"
"""The stage that makes ticks as credits allow, and is woken when they grow."""

RING_NAMES: Final = ("text", "voice", "motion", "picture", "media")
"""In the order of the flow: ring i ends at stage i, the last one at the controller."""

LIVE_SLOTS_MAX: Final = 1024
PICTURE_PX_MAX: Final = 4096
TEXT_BYTES_MAX: Final = 16_384
SEGMENTS_PER_LIVE_MAX: Final = 4
FACE_BYTES_MAX: Final = 4096
OPUS_BYTES_MAX: Final = 1275
_PCM_BYTES: Final = TICK_SAMPLES * 2
_SLOTS_MAX: Final = 4096
_PADDING_BYTES: Final = PARTS_MAX * CACHE_LINE_BYTES


class BadStagesConfig(ValueError):
    """The operator's mistake; the message names the key and what it must be."""


@dataclass(frozen=True, slots=True)
class StageConfig:
    """One stage; None means the class's own default."""

    name: str
    class_path: str
    device: str | None = None
    batch_max: int | None = None
    wait_us_max: int | None = None
    threads: int = 1
    nice: int = 0
    ready_s_max: float = 120.0
    settings: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class StagesConfig:
    """Everything that a worker's stages are made from. `slots` overrides a ring's slots by name."""

    stages: tuple[StageConfig, ...]
    live_slots: int = 16
    width_px_max: int = 512
    height_px_max: int = 512
    voice_bytes: int = 2 << 20
    slots: Mapping[str, int] = field(default_factory=dict[str, int])

    def ring_specs(self) -> dict[str, RingSpec]:
        """Slots and payload bytes of every ring.

        The text ring holds every segment that `SEGMENTS_PER_LIVE_MAX` lets in, so no live can take
        another one's room there. The picture ring is kept short: it is the large one, and what
        waits in it is late.
        """
        lives = self.live_slots
        picture_bytes = self.width_px_max * self.height_px_max * 3
        sizes = {
            "text": (lives * SEGMENTS_PER_LIVE_MAX, TEXT_BYTES_MAX),
            "voice": (min(max(8, lives), 64), self.voice_bytes),
            "motion": (max(32, 4 * lives), _PCM_BYTES + FACE_BYTES_MAX),
            "picture": (min(max(8, 2 * lives), 64), _PCM_BYTES + picture_bytes),
            "media": (max(32, 4 * lives), 2 * OPUS_BYTES_MAX + picture_bytes),
        }
        return {
            name: RingSpec(self.slots.get(name, slots), round_up(payload) + _PADDING_BYTES)
            for name, (slots, payload) in sizes.items()
        }

    def on_device(self, device: str) -> "StagesConfig":
        """The same, every stage that names no device of its own on this one."""
        placed = tuple(replace(s, device=s.device or device) for s in self.stages)
        return replace(self, stages=placed)


BUNDLED: Final = StagesConfig(
    stages=(
        StageConfig("speech", "gpu_stages.stages.speech:SpeechStage"),
        StageConfig("motion", "gpu_stages.stages.motion:MotionStage"),
        StageConfig("render", "gpu_stages.stages.render:RenderStage"),
        StageConfig("encode", "gpu_stages.stages.encode:EncodeStage"),
    )
)


def load_stages_config(path: Path | None = None) -> StagesConfig:
    """Read the TOML; None gives the bundled stages. Raises `BadStagesConfig`."""
    if path is None:
        return BUNDLED
    try:
        given = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadStagesConfig(f"{path}: {error}") from error
    try:
        config = parse_stages_config(given)
    except BadStagesConfig as error:
        raise BadStagesConfig(f"{path}: {error}") from error
    return replace(config, stages=tuple(_from(path.parent, stage) for stage in config.stages))


def _from(folder: Path, stage: StageConfig) -> StageConfig:
    """The stage with the files that it names found from this folder on."""
    module, _, class_name = stage.class_path.rpartition(":")
    if module.endswith(".py"):
        stage = replace(stage, class_path=f"{folder.absolute() / module}:{class_name}")
    program = stage.settings.get("program")
    if stage.class_path in PROGRAM_CLASSES.values() and isinstance(program, str):
        settings = {**stage.settings, "program": str(folder.absolute() / program)}
        stage = replace(stage, settings=settings)
    return stage


def parse_stages_config(given: Mapping[str, object]) -> StagesConfig:
    """The config of a parsed TOML document. Raises `BadStagesConfig`."""
    top = _Table("", given)
    video = top.table("video")
    rings = top.table("rings")
    config = StagesConfig(
        stages=tuple(_stage(top.table(stage.name), stage) for stage in BUNDLED.stages),
        live_slots=top.integer("live_slots", BUNDLED.live_slots, 1, LIVE_SLOTS_MAX),
        width_px_max=video.integer("width_px_max", BUNDLED.width_px_max, 16, PICTURE_PX_MAX),
        height_px_max=video.integer("height_px_max", BUNDLED.height_px_max, 16, PICTURE_PX_MAX),
        voice_bytes=rings.integer("voice_bytes", BUNDLED.voice_bytes, 48_000, 64 << 20),
        slots=_ring_slots(rings),
    )
    for table in (top, video, rings):
        table.no_more()
    if (text_slots := config.slots.get("text")) and text_slots < config.live_slots:
        raise BadStagesConfig(
            f"rings.text_slots is {text_slots}, which leaves some of {config.live_slots} lives none"
        )
    return config


def _ring_slots(rings: "_Table") -> dict[str, int]:
    given = {name: rings.integer(f"{name}_slots", 0, 1, _SLOTS_MAX) for name in RING_NAMES}
    return {name: slots for name, slots in given.items() if slots}


def _stage(table: "_Table", default: StageConfig) -> StageConfig:
    class_path, settings = _model(table, default)
    stage = StageConfig(
        name=default.name,
        class_path=class_path,
        device=table.text("device", "") or None,
        batch_max=table.integer("batch_max", 0, 1, 1024) or None,
        wait_us_max=table.optional_integer("wait_us_max", 0, 100_000),
        threads=table.integer("threads", default.threads, 1, 256),
        nice=table.integer("nice", default.nice, -20, 19),
        ready_s_max=float(table.integer("ready_s_max", round(default.ready_s_max), 1, 3600)),
        settings=settings,
    )
    table.no_more()
    if ":" not in stage.class_path:
        raise BadStagesConfig(
            f"{default.name}.class is {stage.class_path!r}; it must be `module:Class` or"
            " `file.py:Class`"
        )
    return stage


def _model(table: "_Table", default: StageConfig) -> tuple[str, Mapping[str, object]]:
    """The class that serves a stage, and its settings: given, or those of a program."""
    given = table.text("class", "")
    settings = table.json_object("settings")
    program = table.text("program", "")
    tensors = {key: table.json_object(key) for key in ("inputs", "outputs")}
    if not program:
        for key, value in tensors.items():
            if value:
                raise BadStagesConfig(f"{default.name}.{key} goes with {default.name}.program")
        return given or default.class_path, settings
    if default.name not in PROGRAM_CLASSES:
        raise BadStagesConfig(
            f"{default.name}.program: a program serves {' or '.join(PROGRAM_CLASSES)};"
            f" {default.name} needs a class"
        )
    if given or settings:
        raise BadStagesConfig(
            f"{default.name} has a program and a {'class' if given else 'table of settings'};"
            " a program has neither"
        )
    return PROGRAM_CLASSES[default.name], {"program": program, **tensors}


class _Table:
    """A TOML table that is read key by key, so that what is left over is what nobody knows."""

    def __init__(self, prefix: str, given: object) -> None:
        if not isinstance(given, dict):
            raise BadStagesConfig(f"{prefix.rstrip('.')} must be a table")
        self._prefix = prefix
        self._given = dict(cast(dict[str, Any], given))
        self._known: list[str] = []

    def _pop(self, key: str) -> object:
        self._known.append(key)
        return self._given.pop(key, None)

    def table(self, key: str) -> "_Table":
        given = self._pop(key)
        return _Table(f"{self._prefix}{key}.", {} if given is None else given)

    def optional_integer(self, key: str, low: int, high: int) -> int | None:
        value = self._pop(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadStagesConfig(
                f"{self._prefix}{key} is {value!r}; it must be a whole number from {low} to {high}"
            )
        return value

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        value = self.optional_integer(key, low, high)
        return default if value is None else value

    def text(self, key: str, default: str) -> str:
        value = self._pop(key)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            raise BadStagesConfig(f"{self._prefix}{key} is {value!r}; it must be a text")
        return value

    def json_object(self, key: str) -> dict[str, object]:
        value = self._pop(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise BadStagesConfig(f"{self._prefix}{key} must be a table")
        settings = cast(dict[str, object], value)
        try:
            json.dumps(settings)
        except (TypeError, ValueError) as error:
            raise BadStagesConfig(
                f"{self._prefix}{key} holds a value that is no number, text, list or table: {error}"
            ) from error
        return settings

    def no_more(self) -> None:
        """Raises for the first key that nobody asked for."""
        for key in self._given:
            raise BadStagesConfig(
                f"unknown key {self._prefix}{key}; known here: {', '.join(sorted(self._known))}"
            )
