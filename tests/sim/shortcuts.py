"""What makes a run cheap without changing what it does. Installed once per interpreter.

Some things cost much and decide nothing: turning store values into Avro and back, packing the same
few keys and decoding the same few texts again and again, writing events that nobody waits for. Most
runs go without (a value stands in the store as the number of the object itself); every sixteenth
does everything (`full`).
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import structlog

import controller.ids
import controller.limits
import controller.lives
import controller.records
import dispatch.ids
import dispatch.limits
import dispatch.publish
import ownership.values
from ownership import keys
from schemas import store_values
from schemas.bad_record import DeadLetterReason
from schemas.events import EventKind
from schemas.store_values import StoreValue
from schemas.text_record import BadRecord, TextRecord, decode_text_record
from tests.sim import spies

V = TypeVar("V", bound=StoreValue)

_KEYS = (
    "live",
    "gen",
    "claim",
    "cursor",
    "progress",
    "orphan",
    "by_worker_of",
    "by_worker",
    "by_partition_of",
    "by_partition",
    "worker",
    "node",
    "beat",
    "load",
    "slots_of",
    "slot",
    "tally",
    "taken_of",
    "taken",
    "reservations_of",
    "reservation",
    "signal",
    "tomb",
    "watermark",
    "disposing_of",
    "disposing",
    "last_text",
    "last_int",
)

full = False
_MARK = b"\x00"
_objects: dict[bytes, StoreValue] = {}
_number = 0

_encode = StoreValue.encode
_decode = StoreValue.decode.__func__  # type: ignore[attr-defined]
_read = ownership.values.read_value
_publish = controller.lives.Lives.publish
_report = dispatch.publish.Publisher.report


def begin(*, in_full: bool) -> None:
    """A run begins: the values of earlier runs are forgotten, their numbers are never used again.

    So what production code remembers of a value's bytes stays true over runs.
    """
    global full
    full = in_full
    _objects.clear()


def _encode_fast(self: StoreValue) -> bytes:
    global _number
    if full:
        return _encode(self)
    _number += 1
    raw = _MARK + _number.to_bytes(6, "big")
    _objects[raw] = self
    return raw


def _decode_fast(cls: type[StoreValue], value: bytes) -> StoreValue:
    found = _objects.get(value)
    return _decode(cls, value) if found is None else found


def _read_fast(kind: type[V], value: bytes | None) -> V | None:
    found: Any = _objects.get(value)  # type: ignore[arg-type]
    return _read(kind, value) if found is None else found


def _cheap_id(now_ms: int, entropy: bytes) -> str:
    """As unique as a ULID and sorted the same."""
    return f"{now_ms:012x}{entropy[:7].hex()}"


@lru_cache(maxsize=32_768)
def _decoded(value: bytes | None) -> TextRecord | tuple[DeadLetterReason, str]:
    # Not the error itself: it would keep the frames that it was raised through, and so their world.
    try:
        return decode_text_record(value)
    except BadRecord as error:
        return error.reason, error.detail


def _decode_once(value: bytes | None, **_: object) -> TextRecord:
    found = _decoded(value)
    if isinstance(found, tuple):
        raise BadRecord(*found)
    return found


def _publish_or_not(self: controller.lives.Lives, session: Any, order: Any) -> None:
    if order.kind is EventKind.ERROR:
        spies.note_error(session, order.data["reason"])
    if full:
        _publish(self, session, order)


def _report_or_not(self: dispatch.publish.Publisher, *args: Any, **named: Any) -> None:
    if full:
        _report(self, *args, **named)


def _once(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The limits of all workers are one object, and so are those of all replicas."""
    known: dict[int, Any] = {}

    def checked(limits: Any) -> Any:
        if id(limits) not in known:
            known[id(limits)] = check(limits)
        return known[id(limits)]

    return checked


def install() -> None:
    """Once per interpreter."""
    for limits in (controller.limits.Limits, dispatch.limits.Limits):
        limits.check = _once(limits.check)  # type: ignore[method-assign]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    ownership.values.read_value = _read_fast
    StoreValue.encode = _encode_fast  # type: ignore[method-assign]
    StoreValue.decode = classmethod(_decode_fast)  # type: ignore[assignment]
    controller.lives.Lives.publish = _publish_or_not  # type: ignore[method-assign]
    dispatch.publish.Publisher.report = _report_or_not  # type: ignore[method-assign]
    controller.ids.ulid = dispatch.ids.ulid = _cheap_id  # type: ignore[assignment]
    controller.records.decode_text_record = _decode_once  # type: ignore[assignment]
    for name in _KEYS:
        setattr(keys, name, lru_cache(maxsize=65_536)(getattr(keys, name)))


class _Silent:
    """A logger that nobody reads: to say nothing, structlog still makes a logger at each call."""

    def say_nothing(self, *_: object, **__: object) -> None: ...

    debug = info = warning = error = exception = say_nothing


def silence() -> None:
    """For interpreters in which nothing else than runs happens: no log is ever written again."""
    for name, module in sys.modules.items():
        if name.startswith(("controller.", "dispatch.", "ownership.", "stream.")) and (
            "_log" in vars(module)
        ):
            vars(module)["_log"] = _Silent()


__all__ = ["begin", "install", "silence", "store_values"]
