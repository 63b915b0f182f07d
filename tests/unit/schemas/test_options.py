"""What a live may be created with."""

import math

import pytest

from schemas.options import BadOptions, LiveOptions


def test_the_defaults_are_within_their_bounds() -> None:
    assert LiveOptions().check() == LiveOptions()
    assert LiveOptions.from_mapping({}) == LiveOptions()


def test_they_survive_json() -> None:
    given = {"look": "ink", "speed": 1.25, "width_px": 512, "height_px": 320, "seed": 7}
    options = LiveOptions.from_mapping(given)
    assert LiveOptions.from_mapping(options.as_mapping()) == options
    assert (options.look, options.seed, options.width_px) == ("ink", 7, 512)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("look", ""), ("look", "../etc"), ("look", "A"), ("look", 7), ("look", "a" * 65),
        ("voice", None), ("voice", "heart "), ("voice", "heart\n"),
        ("speed", 0.49), ("speed", 2.01), ("speed", math.nan), ("speed", math.inf),
        ("speed", "1"), ("speed", True),
        ("width_px", 62), ("width_px", 1922), ("width_px", 255), ("width_px", 256.0),
        ("height_px", True), ("height_px", None),
        ("seed", -1), ("seed", 2**63), ("seed", "1"),
        ("idle_timeout_ms", 999), ("length_ms_max", 0), ("absent_viewer_ms", -1),
        ("idle_timeout_ms", None), ("nothing", 1),
    ],
)  # fmt: skip
def test_what_is_refused_names_its_field(name: str, value: object) -> None:
    with pytest.raises(BadOptions) as caught:
        LiveOptions.from_mapping({name: value})
    assert caught.value.field == name
    assert caught.value.detail
