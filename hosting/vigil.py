"""What a running process keeps an eye on: that the store, the topic and the group are still those
it began with.

Nothing of the protocol depends on it. Offsets of a topic that was made again mean other records,
and a store that was wiped knows no live: whoever went on would lose text without a word, so these
two end the process, and its next start says what to do. The others are said, shown as a metric, and
watched until they are gone: a topic with more partitions than recorded sends keys elsewhere (those
records become dead letters), and a consumer that is not ours keeps partitions from our custody.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import structlog

from hosting.connections import CLIENT, Service
from ownership.kv import Database, StoreError
from ownership.meta import get_meta
from schemas.topics import TEXT_TOPIC
from stream.transport import BrokerAway, GroupMember, Inspector

LOOK_S = 5.0

_log = structlog.get_logger(__name__)


class Fault(StrEnum):
    """What may be wrong around a process."""

    STORE_WIPED = "store_wiped"
    TOPIC_RECREATED = "topic_recreated"
    TOPIC_MISSING = "topic_missing"
    PARTITIONS_CHANGED = "partitions_changed"
    FOREIGN_CONSUMER = "foreign_consumer"


FATAL = frozenset({Fault.STORE_WIPED, Fault.TOPIC_RECREATED})


class SurroundingsChanged(Exception):
    """To go on would lose text. The message says what happened and what to do."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One look at them. None: could not be asked now, which is somebody else's trouble."""

    service_id: str | None
    topic: tuple[int, str] | None
    """Partition count and id; (-1, "") when there is no topic."""
    members: tuple[GroupMember, ...]


def faults_of(service: Service, role: str, seen: Surroundings) -> dict[Fault, str]:
    """What is wrong, each with what to say of it."""
    found: dict[Fault, str] = {}
    if seen.service_id is not None and seen.service_id != service.service_id:
        what = f"it is that of service {seen.service_id}" if seen.service_id else "it is empty"
        found[Fault.STORE_WIPED] = (
            f"the store is not the one that service {service.service_id} began with: {what}. It "
            "was wiped or replaced under us; restore it"
        )
    if seen.topic is not None:
        found.update(_of_topic(service, *seen.topic))
    foreign = foreigners(service, role, seen.members)
    if foreign:
        named = ", ".join(
            f"{one.client_id} at {one.host} (partitions {sorted(one.partitions)})"
            for one in foreign
        )
        found[Fault.FOREIGN_CONSUMER] = (
            f"consumers that are not ours are in our group and keep partitions from custody: "
            f"{named}. Give them a group of their own"
        )
    return found


def _of_topic(service: Service, partitions: int, topic_id: str) -> dict[Fault, str]:
    if partitions < 0:
        return {Fault.TOPIC_MISSING: f"the topic {TEXT_TOPIC} is gone"}
    if service.topic_id and topic_id and topic_id != service.topic_id:
        return {
            Fault.TOPIC_RECREATED: (
                f"{TEXT_TOPIC} was deleted and made again (its id was {service.topic_id} and is "
                f"{topic_id}): offsets that the store knows mean nothing there. Begin with a new "
                "store"
            )
        }
    if partitions not in (0, service.partition_count):
        return {
            Fault.PARTITIONS_CHANGED: (
                f"{TEXT_TOPIC} has {partitions} partitions now and the store was made for "
                f"{service.partition_count}: producers send keys to other partitions than their "
                "lives', and those records become dead letters"
            )
        }
    return {}


def foreigners(
    service: Service, role: str, members: Sequence[GroupMember]
) -> tuple[GroupMember, ...]:
    """Members of our group that are not of our service."""
    ours = f"{CLIENT}.{role}.{service.service_id}."
    return tuple(one for one in members if not f"{one.client_id}.".startswith(ours))


class Vigil:
    """Looks every few seconds. `group` "" watches no group."""

    def __init__(
        self,
        db: Database,
        inspector: Inspector,
        service: Service,
        *,
        role: str,
        group: str = "",
        look_s: float | None = None,
    ) -> None:
        self._db = db
        self._inspector = inspector
        self._service = service
        self._role = role
        self._group = group
        self._look_s = LOOK_S if look_s is None else look_s
        self.faults: Mapping[Fault, str] = {}
        """As of the last look."""

    async def run(self) -> None:
        """Until cancelled. Raises SurroundingsChanged."""
        while True:
            await asyncio.sleep(self._look_s)
            await self.look()

    async def look(self) -> None:
        """One look. Raises SurroundingsChanged."""
        before = self.faults
        self.faults = faults_of(self._service, self._role, await self._see())
        for fault, said in self.faults.items():
            if fault in FATAL:
                _log.critical(fault.value, what=said)
                raise SurroundingsChanged(said)
            if before.get(fault) != said:
                _log.error(fault.value, what=said)
        for fault in before:
            if fault not in self.faults:
                _log.info("fault_is_gone", fault=fault.value)

    async def _see(self) -> Surroundings:
        topic: tuple[int, str] | None = None
        members: tuple[GroupMember, ...] = ()
        service_id: str | None = None
        try:
            shape = await self._inspector.topic_shape(TEXT_TOPIC)
            topic = (-1, "") if shape is None else (shape.partitions, shape.topic_id)
            if self._group:
                members = await self._inspector.group_members(self._group, TEXT_TOPIC)
        except BrokerAway:
            pass
        try:
            meta = await get_meta(self._db)
            service_id = "" if meta is None else meta.service_id
        except StoreError:
            pass
        return Surroundings(service_id, topic, members)
