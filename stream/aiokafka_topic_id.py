"""A topic's id, which tells a topic from one of the same name that was made after it was deleted.

aiokafka speaks Metadata up to version 5, and brokers tell ids from version 10 on: the request is
here, in aiokafka's own words for schemas. The field that follows each structure of a flexible
version is its tagged fields, of which none is needed.
"""

import base64
from io import BytesIO
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

ID_BYTES = 16
_NO_ID = bytes(ID_BYTES)


class _Id(AbstractType[bytes]):
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        found = data.read(ID_BYTES)
        if len(found) != ID_BYTES:
            raise ValueError("a topic id ends early")
        return found


class _Response(Response):
    API_KEY = 3  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    API_VERSION = 10  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", _Id),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("topic_authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _Request10(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = _Response
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", _Id), ("name", CompactString("utf-8")), ("tags", TaggedFields)
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicIdRequest(Request[_Request10]):
    """Metadata of one topic, which is not made by asking for it. A broker older than 2.8 refuses
    (`prepare` raises NotImplementedError)."""

    API_KEY = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[_Request10]) -> _Request10:
        topics = [(_NO_ID, self._topic, {})]
        return request_struct_class(topics, False, False, False, {})


def topic_id_of(response: Any, topic: str) -> str:
    """As Kafka's own tools print it; "" when the broker gave none."""
    for _, name, topic_id, *_ in response.topics:
        if name == topic and topic_id != _NO_ID:
            return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return ""
