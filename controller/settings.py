"""What an operator sets of a worker; `hosting.settings` says from where."""

import socket
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from pydantic import Field

from controller.incarnation import GROUP
from controller.limits import BadLimits, Limits
from hosting.settings import BadSettings, RoleSettings, meant
from schemas.options import BadOptions, LiveOptions


class WorkerSettings(RoleSettings):
    """Settings of one worker. Workers of one service share `kafka`, `store` and `group`."""

    table: ClassVar[str] = "worker"

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
    unknown_lives: Literal["reject", "create"] = Field(
        "reject",
        description="What becomes of text for an id that never lived: dead letters, or a live",
    )
    unknown_live_options: dict[str, Any] = Field(
        default_factory=dict, description="Options of such a live, as when one is created"
    )
    limits: dict[str, int] = Field(
        default_factory=dict,
        description="Names as in controller/limits.py; parts with a dot: reading.records_max",
    )

    def check(self) -> None:
        """Raises BadSettings."""
        self.checked_limits()
        self.auto_create()
        if self.viewers_per_live_max > self.viewers_max:
            raise BadSettings("viewers_per_live_max must not exceed viewers_max")

    def auto_create(self) -> LiveOptions | None:
        """The options of lives that records open; None where records open none.

        Raises BadSettings.
        """
        try:
            options = LiveOptions.from_mapping(self.unknown_live_options)
        except BadOptions as error:
            raise BadSettings(f"unknown_live_options: {error}") from error
        return options if self.unknown_lives == "create" else None

    def checked_limits(self) -> Limits:
        """The limits with this file's changes. Raises BadSettings."""
        limits: Any = Limits()
        for name, value in self.limits.items():
            limits = _changed(limits, name.split("."), value, name)
        try:
            return cast("Limits", limits).check()
        except BadLimits as error:
            raise BadSettings(str(error)) from error


def _changed(limits: Any, path: list[str], value: int, name: str) -> Any:
    """The limits with one number changed, in a part of a part if the name says so."""
    known = {field.name for field in fields(limits)}
    head, *rest = path
    if head not in known:
        raise BadSettings(f"limits.{name} is not a limit{meant(head, known)}")
    present = getattr(limits, head)
    if is_dataclass(present) != bool(rest):
        raise BadSettings(f"limits.{name} is not a number")
    return replace(limits, **{head: _changed(present, rest, value, name) if rest else value})
