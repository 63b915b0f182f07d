"""The looks that a live can be given by name (`LiveOptions.look`).

Lengths are in model units: the frame's shorter half is `VIEW_HALF` of them, x goes to the picture's
right, y up; the origin lies between nose and eyes. Colours are sRGB.

PURE.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

VIEW_HALF: Final = 0.86
"""Half of the shorter side of a frame, in model units."""


class Hair(StrEnum):
    """How the hair is cut."""

    SWEPT = "swept"
    CURLS = "curls"
    BOB = "bob"


class Clothes(StrEnum):
    """What is worn."""

    CREW = "crew"
    BLAZER = "blazer"
    TURTLENECK = "turtleneck"


@dataclass(frozen=True, slots=True)
class Features:
    """Where the drawn features sit and how large they are."""

    eye_x: float = 0.180
    eye_y: float = 0.098
    eye_half_width: float = 0.090
    eye_open: float = 0.056
    eye_tilt: float = 0.010
    iris: float = 0.049
    lashes: float = 0.35
    brow_y: float = 0.222
    brow_half_length: float = 0.094
    brow_thickness: float = 0.017
    brow_arch: float = 0.019
    mouth_y: float = -0.232
    mouth_half_width: float = 0.122
    upper_lip: float = 0.029
    lower_lip: float = 0.040


@dataclass(frozen=True, slots=True)
class Shape:
    """The skull's proportions; 1 is the clay look's."""

    jaw_width: float = 1.0
    chin: float = 1.0
    cheeks: float = 1.0
    nose: float = 1.0
    neck: float = 1.0
    shoulders: float = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """One person."""

    name: str
    hair: Hair
    clothes: Clothes
    skin: str
    lip: str
    blush: str
    hair_color: str
    hair_shine: str
    brow: str
    lash: str
    iris: str
    cloth: str
    cloth_second: str
    background_light: str
    background_dark: str
    glasses: bool = False
    features: Features = Features()
    shape: Shape = Shape()


LOOKS: Final = (
    Look(
        name="clay",
        hair=Hair.SWEPT,
        clothes=Clothes.CREW,
        skin="#e9b597",
        lip="#c9786b",
        blush="#e0826f",
        hair_color="#5a3827",
        hair_shine="#c08a5e",
        brow="#4a2e22",
        lash="#2a1a13",
        iris="#5b7f6a",
        cloth="#3d6f7a",
        cloth_second="#335f69",
        background_light="#c3d0cc",
        background_dark="#6f8b8f",
    ),
    Look(
        name="studio",
        hair=Hair.CURLS,
        clothes=Clothes.BLAZER,
        skin="#8d5a3f",
        lip="#a05a53",
        blush="#9a4a38",
        hair_color="#231a18",
        hair_shine="#6b5348",
        brow="#1c1412",
        lash="#120c0a",
        iris="#4a2d1c",
        cloth="#27324f",
        cloth_second="#f1ede6",
        background_light="#ecd3b0",
        background_dark="#b07f52",
        glasses=True,
        features=Features(
            eye_open=0.048,
            iris=0.045,
            brow_thickness=0.021,
            upper_lip=0.034,
            lower_lip=0.042,
            mouth_half_width=0.128,
            lashes=0.25,
        ),
        shape=Shape(jaw_width=1.10, chin=1.12, cheeks=0.9, nose=1.18, neck=1.14, shoulders=1.08),
    ),
    Look(
        name="aurora",
        hair=Hair.BOB,
        clothes=Clothes.TURTLENECK,
        skin="#f3cdbb",
        lip="#d0606c",
        blush="#f0929a",
        hair_color="#a4452a",
        hair_shine="#ffb27a",
        brow="#7d3a26",
        lash="#3a1c18",
        iris="#3f78a8",
        cloth="#efe4d6",
        cloth_second="#e2d3c2",
        background_light="#b9a9e0",
        background_dark="#4d4a86",
        features=Features(
            eye_open=0.062,
            iris=0.053,
            eye_half_width=0.094,
            eye_tilt=0.016,
            lashes=1.0,
            brow_thickness=0.012,
            brow_arch=0.028,
            mouth_half_width=0.108,
            upper_lip=0.028,
            lower_lip=0.038,
        ),
        shape=Shape(jaw_width=0.90, chin=0.85, cheeks=1.05, nose=0.86, neck=0.86, shoulders=0.90),
    ),
)

LOOK_NAMES: Final = tuple(look.name for look in LOOKS)
"""The first one is the default."""


class BadLook(ValueError):
    """A look that is not there. The message lists those that are."""

    def __init__(self, look: str) -> None:
        super().__init__(f"no look {look}: there are {', '.join(LOOK_NAMES)}")


def look_index(name: str) -> int:
    """The index that `HeadRenderer.render` takes. Raises `BadLook`."""
    try:
        return LOOK_NAMES.index(name)
    except ValueError:
        raise BadLook(repr(name)) from None
