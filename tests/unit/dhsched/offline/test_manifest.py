"""Manifests: written, read back, and compared."""

from dataclasses import replace

import pytest

from dhsched.offline.lettering import GLYPH_ROWS, label
from dhsched.offline.manifest import (
    BadManifest,
    Manifest,
    SegmentMade,
    TrackMade,
    read_manifest,
    same_media,
    same_speech,
    segment_differences,
    setting_differences,
)

SEGMENT = SegmentMade(1, 0, 0, "Hello.", 0, 25, 10, 9_600, "whole", (1,), "aa", "bb")
MANIFEST = Manifest(
    live_id="anna",
    source={"name": "a.avro"},
    settings={"timing": "recorded"},
    options={"look": "clay"},
    versions={"torch": "1"},
    device="cpu",
    processor="a CPU",
    files={"sound": "a.wav"},
    frames=35,
    sound=TrackMade(33_600, "cc"),
    picture=TrackMade(35, "dd"),
    segments=(SEGMENT, replace(SEGMENT, segment_id=2, owners=(1, 2))),
)


def test_it_is_read_back_as_it_was_written() -> None:
    assert read_manifest(MANIFEST.as_json()) == MANIFEST
    without = replace(MANIFEST, picture=None)
    assert read_manifest(without.as_json()) == without


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": 2}', '{"schema": 1}', MANIFEST.as_json().replace("frames", "x")],
)
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(BadManifest):
        read_manifest(text)


def test_the_same_is_the_same() -> None:
    assert same_media(MANIFEST, MANIFEST)
    assert not segment_differences(MANIFEST, MANIFEST)
    assert not setting_differences(MANIFEST, MANIFEST)


def test_who_owned_a_segment_is_no_difference() -> None:
    other = replace(MANIFEST, segments=(SEGMENT, replace(SEGMENT, segment_id=2)))
    assert same_media(MANIFEST, other)


def test_a_run_without_pictures_is_compared_by_its_sound() -> None:
    silent = replace(
        MANIFEST,
        picture=None,
        segments=tuple(replace(one, picture=None) for one in MANIFEST.segments),
    )
    assert same_media(MANIFEST, silent)


def test_differences_name_the_segment_and_what() -> None:
    other = replace(
        MANIFEST,
        sound=TrackMade(33_600, "ee"),
        segments=(SEGMENT, replace(MANIFEST.segments[1], sound="xx")),
    )
    (found,) = segment_differences(MANIFEST, other)
    assert (found.segment, found.what) == (1, "sound")
    assert not same_media(MANIFEST, other)
    assert not same_speech(MANIFEST, other)


def test_the_same_speech_elsewhere_in_the_film_is_the_same_speech() -> None:
    later = tuple(replace(one, first_frame=one.first_frame + 3) for one in MANIFEST.segments)
    other = replace(MANIFEST, sound=TrackMade(36_480, "ee"), segments=later)
    assert same_speech(MANIFEST, other)
    assert not same_media(MANIFEST, other)


def test_a_missing_segment_is_told() -> None:
    found = segment_differences(MANIFEST, replace(MANIFEST, segments=(SEGMENT,)))
    assert [one.what for one in found] == ["segments"]


def test_what_made_it_otherwise_is_told() -> None:
    other = replace(MANIFEST, versions={"torch": "2"}, device="cuda:0", options={"look": "studio"})
    told = {one.what for one in setting_differences(MANIFEST, other)}
    assert told == {"versions.torch", "device", "options.look"}


def test_a_label_is_dots_as_wide_as_it_was_asked_for() -> None:
    made = label("a-1", width=101, scale=2)
    assert made.shape == ((GLYPH_ROWS + 6) * 2, 101)
    assert set(made.flatten().tolist()) == {0, 1}
    assert not label("", width=50).any()
    assert label("x" * 500, width=60).shape[1] == 60
