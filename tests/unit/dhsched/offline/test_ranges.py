"""Points in a topic as people write them."""

import pytest

from dhsched.offline.ranges import (
    AfterBegin,
    AtOffset,
    AtOffsets,
    AtTime,
    BadPoint,
    Point,
    parse_point,
)

NOW_MS = 1_764_400_000_000


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("0", AtOffset(0)),
        ("9223372036854775807", AtOffset(2**63 - 1)),
        ("0:12", AtOffsets({0: 12})),
        ("3:80,0:1200", AtOffsets({3: 80, 0: 1200})),
        ("-10m", AtTime(NOW_MS - 600_000)),
        ("-1h30m", AtTime(NOW_MS - 5_400_000)),
        ("-1.5s", AtTime(NOW_MS - 1_500)),
        ("-2d", AtTime(NOW_MS - 172_800_000)),
        ("+250ms", AfterBegin(250)),
        ("1970-01-01T00:00:01.5", AtTime(1_500)),
        ("1970-01-01T00:00:01.5Z", AtTime(1_500)),
        ("1970-01-01T01:00:01+01:00", AtTime(1_000)),
        ("1970-01-02", AtTime(86_400_000)),
        (" 7 ", AtOffset(7)),
    ],
)
def test_points(text: str, point: Point) -> None:
    assert parse_point(text, NOW_MS) == point


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "-", "-10", "+5 m", "-m", "1:2:3", "0:1,", "-1h30", "9223372036854775808"],
)
def test_what_is_no_point(text: str) -> None:
    with pytest.raises(BadPoint):
        parse_point(text, NOW_MS)


def test_a_partition_named_twice() -> None:
    with pytest.raises(BadPoint, match="names a partition twice"):
        parse_point("0:1,0:2", NOW_MS)
