"""What is missing or out of order in a capture."""

from dataclasses import replace

import pytest

from dhsched.offline.entries import CaptureHeader, Entry
from dhsched.offline.offsets import FINDINGS_MAX, FindingKind, OffsetChecker
from tests.unit.dhsched.offline.captures import HEADER, event, record

ALL = replace(HEADER, ranges={0: (10, 20)}, live_id=None)


def checked(entries: list[Entry], header: CaptureHeader = ALL) -> OffsetChecker:
    checker = OffsetChecker(header)
    for entry in entries:
        checker.see(entry)
    checker.finish()
    return checker


def test_a_whole_range_has_no_findings() -> None:
    checker = checked([record(offset) for offset in range(10, 20)])
    assert checker.findings == []
    assert checker.missing == 0


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ([*range(11, 20)], ["offset 10 is not there"]),
        ([*range(10, 18)], ["offsets 18 to 19 are not there"]),
        ([], ["offsets 10 to 19 are not there"]),
        (
            [10, 11, 14, 15, 16, 18, 19],
            ["offsets 12 to 13 are not there", "offset 17 is not there"],
        ),
    ],
)
def test_gaps_are_found(offsets: list[int], said: list[str]) -> None:
    checker = checked([record(offset) for offset in offsets])
    assert [str(one) for one in checker.findings] == [
        f"dhsched.text partition 0: {s}" for s in said
    ]
    assert checker.missing == 10 - len(offsets)
    assert checker.counts == {FindingKind.GAP: len(said)}


def test_what_comes_twice_or_late_is_found_and_leaves_the_rest_in_order() -> None:
    checker = checked([record(offset) for offset in (10, 11, 11, 12, 10, 13, *range(14, 20))])
    assert [str(one) for one in checker.findings] == [
        "dhsched.text partition 0: offset 11 comes twice",
        "dhsched.text partition 0: offset 10 comes after 12",
    ]


def test_a_capture_of_one_live_has_gaps_by_its_nature() -> None:
    one = replace(ALL, live_id="live-1")
    assert checked([record(12), record(17)], one).findings == []
    (finding,) = checked([record(17), record(12)], one).findings
    assert finding.kind is FindingKind.OUT_OF_ORDER


def test_partitions_and_topics_have_offsets_of_their_own() -> None:
    entries: list[Entry] = []
    for offset in range(10, 20):
        entries += [record(offset), record(offset - 10, partition=2), event(offset * 3)]
    checker = checked(entries, replace(ALL, ranges={0: (10, 20), 2: (0, 10)}))
    assert checker.findings == []
    (finding,) = checked([event(7), event(6)]).findings[:1]
    assert finding.topic == "dhsched.events"


def test_findings_are_bounded_and_counted() -> None:
    checker = checked([record(offset) for offset in range(10, 200, 2)])
    assert len(checker.findings) == FINDINGS_MAX
    assert checker.counts[FindingKind.GAP] == 94


def test_a_file_made_of_text_has_no_range_to_be_missing_from() -> None:
    assert checked([record(5), record(6)], replace(ALL, ranges={})).findings == []
