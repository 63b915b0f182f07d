"""What an operator sets: flags over `DHSCHED_*` environment variables over a TOML file.

A TOML file may serve every command: keys that all share stand at its top, those of this command in
a table `[worker]`; tables of other commands are left alone. An unknown key is refused, because a
misspelt limit that is silently ignored is found in production.
"""

import difflib
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from controller.incarnation import GROUP
from controller.limits import BadLimits, Limits

ENV_PREFIX = "DHSCHED_"
TABLE = "worker"


class BadSettings(ValueError):
    """An operator's mistake; the message says what to change."""


class WorkerSettings(BaseSettings):
    """Settings of one worker. Workers of one service share `kafka`, `store` and `group`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    kafka: str = Field("127.0.0.1:9092", min_length=1, description="Bootstrap servers, host:port")
    store: str = Field("lmdb:///var/lib/dhsched/store", min_length=1, description="Store URL")
    node: str = Field(
        default_factory=socket.gethostname,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        description="Stable name of this place; a worker that starts on it supersedes the last",
    )
    capacity: int = Field(8, ge=1, le=1024, description="Lives it holds at most")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu or cuda:N")
    stages: Path | None = Field(None, description="TOML file naming the stages' classes")
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on")
    port: int = Field(0, ge=0, le=65_535, description="Port to listen on; 0 picks a free one")
    url: str = Field("", description="How Dispatch and viewers reach it, if not by host and port")
    group: str = Field(GROUP, min_length=1, description="Consumer group of all workers")
    media_hosts: tuple[str, ...] = Field((), description="Addresses offered to viewers; empty: all")
    viewers_max: int = Field(64, ge=1)
    viewers_per_live_max: int = Field(16, ge=1)
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    confluent_ids: dict[int, int] = Field(
        default_factory=dict, description="Schema registry ids and the fingerprints they stand for"
    )
    limits: dict[str, int] = Field(
        default_factory=dict,
        description="Names as in controller/limits.py; parts with a dot: reading.records_max",
    )

    def checked_limits(self) -> Limits:
        """The limits with this file's changes. Raises BadSettings."""
        limits: Any = Limits()
        for name, value in self.limits.items():
            limits = _changed(limits, name.split("."), value, name)
        try:
            return cast("Limits", limits).check()
        except BadLimits as error:
            raise BadSettings(str(error)) from error

    _file: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, InitSettingsSource(settings_cls, dict(cls._file)))


def load_settings(
    flags: Mapping[str, object] | None = None, config: Path | None = None
) -> WorkerSettings:
    """Flags that are None were not given. Raises BadSettings."""
    from_file = _read(config) if config is not None else {}

    class WithFile(WorkerSettings):
        _file: ClassVar[Mapping[str, Any]] = from_file

    given = {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        merged = WithFile(**cast("dict[str, Any]", given))
    except ValidationError as error:
        raise BadSettings("; ".join(_say(one) for one in error.errors())) from error
    merged.checked_limits()
    if merged.viewers_per_live_max > merged.viewers_max:
        raise BadSettings("viewers_per_live_max must not exceed viewers_max")
    return merged


def _changed(limits: Any, path: list[str], value: int, name: str) -> Any:
    """The limits with one number changed, in a part of a part if the name says so."""
    known = {field.name for field in fields(limits)}
    head, *rest = path
    if head not in known:
        raise BadSettings(f"limits.{name} is not a limit{_meant(head, known)}")
    present = getattr(limits, head)
    if is_dataclass(present) != bool(rest):
        raise BadSettings(f"limits.{name} is not a number")
    return replace(limits, **{head: _changed(present, rest, value, name) if rest else value})


def _read(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not valid TOML: {error}") from error
    own = document.pop(TABLE, {})
    if not isinstance(own, dict):
        raise BadSettings(f"{path}: [{TABLE}] must be a table")
    known = set(WorkerSettings.model_fields)
    shared = {
        name: value
        for name, value in document.items()
        if name in known or not isinstance(value, dict)
    }
    merged = {**shared, **cast("dict[str, Any]", own)}
    for name in merged:
        if name not in known:
            raise BadSettings(f"{path}: {name} is not a setting{_meant(name, known)}")
    return merged


def _meant(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(sorted(known))}"


def _say(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    return f"{place}: {error['msg']}"
