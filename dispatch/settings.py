"""What an operator sets: flags over `DHSCHED_*` environment variables over a TOML file.

A TOML file may serve every command: keys that all share stand at its top, those of this command in
a table `[dispatch]`; tables of other commands are left alone. An unknown key is refused, because a
misspelt limit that is silently ignored is found in production.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from dispatch.limits import BadLimits, Limits
from schemas.options import BadOptions, LiveOptions

ENV_PREFIX = "DHSCHED_"
TABLE = "dispatch"


class BadSettings(ValueError):
    """An operator's mistake; the message says what to change."""


class DispatchSettings(BaseSettings):
    """Settings of one replica. Replicas of one service share `kafka` and `store`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    kafka: str = Field("127.0.0.1:9092", min_length=1, description="Bootstrap servers, host:port")
    store: str = Field("lmdb:///var/lib/dhsched/store", min_length=1, description="Store URL")
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on")
    port: int = Field(8080, ge=0, le=65_535, description="Port to listen on; 0 picks a free one")
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    text_partitions: int = Field(12, ge=1, le=10_000, description="Used when the topic is made")
    shutdown_s: float = Field(5.0, gt=0, le=300, description="How long requests may end at SIGTERM")
    body_bytes_max: int = Field(131_072, ge=32_768, le=16_777_216)
    body_wait_s: float = Field(15.0, gt=0, le=300, description="How long a body may take to arrive")
    stream_write_s: float = Field(20.0, gt=0, description="How long a stream's reader may block it")
    heartbeat_s: float = Field(10.0, gt=0, description="Event stream comment when nothing happens")
    owner_wait_s: float = Field(10.0, gt=0, description="How long a worker may take to answer")
    claim_wait_ms: int = Field(1_000, ge=0, description="How long WHEP waits for an owner's claim")
    cors_origins: tuple[str, ...] = ()
    looks: tuple[str, ...] = Field(
        ("clay", "studio", "aurora"), description="What a live may ask for; all workers have them"
    )
    voices: tuple[str, ...] = Field(
        ("heart",), description="What a live may ask for; all workers have them"
    )
    limits: dict[str, int] = Field(
        default_factory=dict, description="Names as in dispatch/limits.py"
    )

    def checked_limits(self) -> Limits:
        """The limits with this file's changes. Raises BadSettings."""
        known = {field.name for field in fields(Limits)}
        for name in self.limits:
            if name not in known:
                raise BadSettings(f"limits.{name} is not a limit{_meant(name, known)}")
        try:
            return Limits(**self.limits).check()
        except BadLimits as error:
            raise BadSettings(str(error)) from error

    def check_names(self, options: LiveOptions) -> LiveOptions:
        """Refuse a look or voice that no worker could draw or speak. Raises BadOptions."""
        for option, name, known in (
            ("look", options.look, self.looks),
            ("voice", options.voice, self.voices),
        ):
            if name not in known:
                raise BadOptions(option, f"there is no {name!r}; there are {', '.join(known)}")
        return options

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
) -> DispatchSettings:
    """Flags that are None were not given. Raises BadSettings."""
    from_file = _read(config) if config is not None else {}

    class WithFile(DispatchSettings):
        _file: ClassVar[Mapping[str, Any]] = from_file

    given = {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        merged = WithFile(**cast("dict[str, Any]", given))
    except ValidationError as error:
        raise BadSettings("; ".join(_say(one) for one in error.errors())) from error
    merged.checked_limits()
    return merged


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
    known = set(DispatchSettings.model_fields)
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
    return f"; the settings are {', '.join(sorted(known))}"


def _say(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    return f"{place}: {error['msg']}"
