"""Places in the events topic, as the ids of server-sent events.

An id is `partition:offset`, the event's own place. A stream over every live reads all partitions,
so its ids list the place reached in each, comma-separated: whoever comes back with the id misses
nothing and gets nothing twice. An offset of -1 stands before a partition's first record.

PURE.
"""

from collections.abc import Mapping

ID_BYTES_MAX = 16_384
OFFSET_MAX = 2**63 - 2


class BadEventId(ValueError):
    """The caller's fault: not an id that this service gave out."""


def format_event_id(places: Mapping[int, int]) -> str:
    """`{partition: last offset seen}` as an id."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(places.items()))


def parse_event_id(text: str, partition_count: int) -> dict[int, int]:
    """The last offset seen per named partition. Raises BadEventId."""
    if len(text) > ID_BYTES_MAX:
        raise BadEventId(f"an event id has at most {ID_BYTES_MAX} characters")
    places: dict[int, int] = {}
    for part in text.split(","):
        left, colon, right = part.strip().partition(":")
        if not colon:
            raise BadEventId("an event id has the form partition:offset")
        partition, offset = _number(left), _number(right)
        if not 0 <= partition < partition_count:
            raise BadEventId(f"partition {partition} is not one of the {partition_count}")
        if not -1 <= offset <= OFFSET_MAX or partition in places:
            raise BadEventId(f"{part.strip()!r} is no place in the events topic")
        places[partition] = offset
    return places


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise BadEventId("an event id has the form partition:offset, in decimal digits")
    return int(text)
