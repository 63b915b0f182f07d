"""Limits that contradict each other are refused at start."""

from dataclasses import replace
from typing import Any

import pytest

from stream.settings import EMBEDDED_CLUSTER_ID, BadKafkaSettings, KafkaSettings


def test_the_defaults_agree() -> None:
    assert KafkaSettings("a:1, b:2,").servers == ["a:1", "b:2"]


@pytest.mark.parametrize(
    "given",
    [
        {"bootstrap": ""},
        {"bootstrap": " , "},
        {"bootstrap": "a:1,b:x"},
        {"bootstrap": "a:0"},
        {"heartbeat_interval_ms": 10_000},
        {"session_timeout_ms": 60_000},
        {"rebalance_timeout_ms": 60_000},
        {"stall_check_ms": 15_000},
        {"fetch_max_wait_ms": 0},
        {"send_timeout_ms": 0},
        {"security_protocol": "TLS"},
        {"security_protocol": "SASL_SSL"},
    ],
)
def test_what_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadKafkaSettings):
        KafkaSettings(**{"bootstrap": "a:1", **given})


def test_the_embedded_broker_is_asked_more_often() -> None:
    given = KafkaSettings("a:1")
    assert given.for_cluster("MkU3OEVBNTcwNTJENDM2Qg") == given
    embedded = given.for_cluster(EMBEDDED_CLUSTER_ID)
    assert (embedded.fetch_max_wait_ms, embedded.session_timeout_ms) == (40, 6_000)
    short = KafkaSettings("a:1", session_timeout_ms=2_000, fetch_max_wait_ms=10)
    assert short.for_cluster(EMBEDDED_CLUSTER_ID) == replace(short, names_last_batch=True)
