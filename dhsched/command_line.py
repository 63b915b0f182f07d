"""What the modules with commands share: flags that mean the same everywhere, and how they run."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Annotated, Any, Final

from cyclopts import Parameter

from dhsched.output import CommandFailed, fail

USAGE_STATUS: Final = 2

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for machines.")]
Kafka = Annotated[
    str,
    Parameter(
        env_var=["DHSCHED_KAFKA", "KAFKA_BOOTSTRAP_SERVERS"], help="Brokers, host:port[,...]."
    ),
]
Store = Annotated[str, Parameter(env_var="DHSCHED_STORE", help="lmdb:///path or fdb:///file")]
DispatchUrl = Annotated[
    str, Parameter(name="--dispatch", env_var="DHSCHED_DISPATCH", help="A Dispatch replica's URL.")
]


def run(command: Coroutine[Any, Any, None], as_json: bool) -> None:
    """Run a command to its end. A failure is printed and leaves with its status."""
    try:
        asyncio.run(command)
    except CommandFailed as error:
        fail(error, as_json)
    except BaseExceptionGroup as group:
        known = group.subgroup(CommandFailed)
        if known is None:
            raise
        fail(_first(known), as_json)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _first(group: BaseExceptionGroup[CommandFailed]) -> CommandFailed:
    inner = group.exceptions[0]
    return inner if isinstance(inner, CommandFailed) else _first(inner)
