"""What an operator sets of a Dispatch replica; `hosting.settings` says from where."""

from dataclasses import fields
from typing import ClassVar, Literal

from pydantic import Field

from dispatch.limits import BadLimits, Limits
from hosting.settings import BadSettings, RoleSettings, meant
from schemas.options import BadOptions, LiveOptions


class DispatchSettings(RoleSettings):
    """Settings of one replica. Replicas of one service share `kafka` and `store`."""

    table: ClassVar[str] = "dispatch"

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

    def check(self) -> None:
        """Raises BadSettings."""
        self.checked_limits()

    def checked_limits(self) -> Limits:
        """The limits with this file's changes. Raises BadSettings."""
        known = {field.name for field in fields(Limits)}
        for name in self.limits:
            if name not in known:
                raise BadSettings(f"limits.{name} is not a limit{meant(name, known)}")
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
