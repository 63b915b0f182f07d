"""How this process speaks to Kafka: addresses, security and the limits that depend on each other.

PURE.
"""

from dataclasses import dataclass, replace

# What the embedded broker calls its cluster.
EMBEDDED_CLUSTER_ID = "tansu_cluster"


class BadKafkaSettings(ValueError):
    """The operator's fault: two limits contradict each other, or one makes no sense."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """`bootstrap` is a comma-separated list of HOST:PORT. `idempotent` None probes the broker.

    A member that is silent for `session_timeout_ms` is expelled from its group; one that takes
    longer than `rebalance_timeout_ms` to come back to a rebalance is left out of it; one that is
    not polled for `max_poll_interval_ms` leaves by itself. A reader that lags without moving for
    `stall_ms` is made anew. `names_last_batch`: the broker takes the log's last batch for its end.
    """

    bootstrap: str
    client_id: str = "dhsched"
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = None
    ssl_ca_file: str | None = None
    idempotent: bool | None = None
    request_timeout_ms: int = 10_000
    send_timeout_ms: int = 5_000
    fetch_max_wait_ms: int = 250
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 1_000
    rebalance_timeout_ms: int = 15_000
    max_poll_interval_ms: int = 60_000
    stall_check_ms: int = 5_000
    stall_ms: int = 15_000
    names_last_batch: bool = False

    def __post_init__(self) -> None:
        if not [server for server in self.bootstrap.split(",") if server.strip()]:
            raise BadKafkaSettings("bootstrap names no server (HOST:PORT, ...)")
        for server in self.servers:
            _, colon, port = server.rpartition(":")
            if colon and not (port.isdecimal() and 0 < int(port) < 65_536):
                raise BadKafkaSettings(f"{server} is not HOST:PORT")
        known = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        if self.security_protocol not in known:
            raise BadKafkaSettings(f"security_protocol is one of {', '.join(known)}")
        if self.security_protocol.startswith("SASL") and not self.sasl_username:
            raise BadKafkaSettings("SASL needs sasl_username and sasl_password")
        ordered = (
            ("fetch_max_wait_ms", "request_timeout_ms"),
            ("heartbeat_interval_ms", "session_timeout_ms"),
            ("session_timeout_ms", "max_poll_interval_ms"),
            ("rebalance_timeout_ms", "max_poll_interval_ms"),
            ("stall_check_ms", "stall_ms"),
        )
        for lower, upper in ordered:
            if not 0 < getattr(self, lower) < getattr(self, upper):
                raise BadKafkaSettings(f"{lower} must be above 0 and below {upper}")
        if self.send_timeout_ms <= 0:
            raise BadKafkaSettings("send_timeout_ms must be above 0")

    @property
    def servers(self) -> list[str]:
        return [server.strip() for server in self.bootstrap.split(",") if server.strip()]

    @property
    def is_embedded(self) -> bool:
        """Whether these fit the embedded broker, and so were made by `for_cluster`."""
        return self.names_last_batch

    def for_cluster(self, cluster_id: str) -> "KafkaSettings":
        """These settings as they fit the cluster that was found.

        The embedded broker looks for new records only twice in the time that a fetch may wait, and
        lets a group wait for half a session before every generation: both are kept short there. For
        the end of a log it names the last batch.
        """
        if cluster_id != EMBEDDED_CLUSTER_ID:
            return self
        return replace(
            self,
            names_last_batch=True,
            fetch_max_wait_ms=min(self.fetch_max_wait_ms, 40),
            session_timeout_ms=max(
                self.heartbeat_interval_ms + 1, min(self.session_timeout_ms, 6_000)
            ),
        )
