"""Settings of a process: flags over `DHSCHED_*` environment variables over a TOML file.

A TOML file may serve every command: keys that all share stand at its top, those of one command in
a table of its name; tables of other commands are left alone. An unknown key is refused, because a
misspelt limit that is silently ignored is found in production.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

ENV_PREFIX = "DHSCHED_"


class BadSettings(ValueError):
    """An operator's mistake; the message says what to change."""


class RoleSettings(BaseSettings):
    """What one command can be told. A subclass names its table and its fields."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    table: ClassVar[str]
    _file: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def load(cls, flags: Mapping[str, object] | None = None, config: Path | None = None) -> Self:
        """Flags that are None were not given. Raises BadSettings."""
        from_file = _read(config, cls.table, set(cls.model_fields)) if config is not None else {}
        with_file = type(cls.__name__, (cls,), {"_file": from_file, "__module__": cls.__module__})
        given = {name: value for name, value in (flags or {}).items() if value is not None}
        try:
            merged = cast("Self", with_file(**given))
        except ValidationError as error:
            raise BadSettings("; ".join(_say(one) for one in error.errors())) from error
        merged.check()
        return merged

    def check(self) -> None:
        """What one field alone cannot say. Raises BadSettings."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags first, then the environment, then the file."""
        return (init_settings, env_settings, InitSettingsSource(settings_cls, dict(cls._file)))


def meant(name: str, known: Iterable[str]) -> str:
    """What whoever wrote `name` may have meant, to end an error with."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(names)}"


def _read(path: Path, table: str, known: set[str]) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not valid TOML: {error}") from error
    own = document.pop(table, {})
    if not isinstance(own, dict):
        raise BadSettings(f"{path}: [{table}] must be a table")
    shared = {
        name: value
        for name, value in document.items()
        if name in known or not isinstance(value, dict)
    }
    merged = {**shared, **cast("dict[str, Any]", own)}
    for name in merged:
        if name not in known:
            raise BadSettings(f"{path}: {name} is not a setting{meant(name, known)}")
    return merged


def _say(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    return f"{place}: {error['msg']}"
