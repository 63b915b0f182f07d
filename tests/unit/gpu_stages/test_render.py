"""The renderer: what is drawn, that it is drawn the same in any company, and that it moves well."""

import hashlib
from collections.abc import Mapping
from itertools import pairwise

import pytest
import torch

from gpu_stages.face.head import BadSize, HeadRenderer, check_size
from gpu_stages.face.looks import LOOK_NAMES, LOOKS, BadLook, look_index
from gpu_stages.face.parameters import FACE_PARAMETERS, Face
from gpu_stages.face.textures import frame_of

SIZE = 192
Box = tuple[float, float, float, float]  # left, bottom, right, top in model units

MOUTH: Box = (-0.24, -0.40, 0.24, -0.10)
JAW: Box = (-0.40, -0.56, 0.40, -0.08)
LEFT_EYE: Box = (0.06, 0.02, 0.32, 0.18)
RIGHT_EYE: Box = (-0.32, 0.02, -0.06, 0.18)
LEFT_BROW: Box = (0.05, 0.17, 0.32, 0.32)
RIGHT_BROW: Box = (-0.32, 0.17, -0.05, 0.32)
HAIR: Box = (-0.40, 0.48, 0.40, 0.74)
SHOULDERS: Box = (-0.70, -0.86, 0.70, -0.72)
FACE: Box = (-0.36, -0.40, 0.36, 0.36)
CORNER: Box = (-0.86, 0.70, -0.66, 0.86)
OPENING: Box = (-0.10, -0.30, 0.10, -0.19)


@pytest.fixture(scope="module")
def renderer() -> HeadRenderer:
    torch.set_num_threads(1)
    made = HeadRenderer()
    made.warm_up(SIZE, SIZE)
    return made


def vector(**values: float) -> torch.Tensor:
    got = torch.zeros(FACE_PARAMETERS)
    for name, value in values.items():
        got[Face[name]] = value
    return got


def draw(
    renderer: HeadRenderer, values: Mapping[str, float], look: int = 0, size: int = SIZE
) -> torch.Tensor:
    return renderer.render(vector(**values)[None], [look], size, size)[0]


def luma(frame: torch.Tensor, box: Box | None = None, size: int = SIZE) -> torch.Tensor:
    plane = frame[:size].to(torch.int32)
    if box is None:
        return plane
    at = frame_of(size, size)
    left, bottom, right, top = box
    columns = slice(round(at.x0_px + left * at.scale), round(at.x0_px + right * at.scale))
    rows = slice(round(at.y0_px - top * at.scale), round(at.y0_px - bottom * at.scale))
    return plane[max(rows.start, 0) : rows.stop, max(columns.start, 0) : columns.stop]


def change(a: torch.Tensor, b: torch.Tensor, box: Box | None = None) -> float:
    """Mean difference of luma in a box."""
    return float((luma(a, box) - luma(b, box)).abs().float().mean())


def digest(frame: torch.Tensor) -> str:
    return hashlib.sha256(frame.cpu().numpy().tobytes()).hexdigest()


def some_vectors(count: int) -> torch.Tensor:
    made = torch.rand(count, FACE_PARAMETERS, generator=torch.Generator().manual_seed(7))
    made[:, Face.HEAD_YAW : Face.HEAD_Y + 1] = made[:, Face.HEAD_YAW : Face.HEAD_Y + 1] * 0.5 - 0.25
    return made


def test_the_same_again_in_any_batch(renderer: HeadRenderer) -> None:
    vectors = some_vectors(7)
    looks = [0, 1, 2, 0, 2, 1, 0]
    alone = [digest(renderer.render(vectors[i : i + 1], looks[i : i + 1], SIZE, SIZE)[0])
             for i in range(7)]  # fmt: skip
    for start, count in ((0, 7), (0, 6), (2, 3), (5, 2), (1, 4)):
        part = slice(start, start + count)
        together = renderer.render(vectors[part], looks[part], SIZE, SIZE)
        assert [digest(frame) for frame in together] == alone[part]


def test_a_new_renderer_draws_the_same_bytes(renderer: HeadRenderer) -> None:
    vectors = some_vectors(1)
    other = HeadRenderer()
    assert digest(other.render(vectors, [1], SIZE, SIZE)) == digest(
        renderer.render(vectors, [1], SIZE, SIZE)
    )


REGIONS = {
    Face.JAW_OPEN: (JAW, HAIR),
    Face.LIPS_ROUND: (MOUTH, HAIR),
    Face.LIPS_WIDE: (MOUTH, HAIR),
    Face.LIP_UPPER_RAISE: (MOUTH, HAIR),
    Face.LIP_LOWER_DROP: (MOUTH, HAIR),
    Face.SMILE: (MOUTH, HAIR),
    Face.BROW_UP_LEFT: (LEFT_BROW, MOUTH),
    Face.BROW_UP_RIGHT: (RIGHT_BROW, MOUTH),
    Face.BLINK_LEFT: (LEFT_EYE, RIGHT_EYE),
    Face.BLINK_RIGHT: (RIGHT_EYE, LEFT_EYE),
    Face.SQUINT: (LEFT_EYE, MOUTH),
    Face.GAZE_X: (LEFT_EYE, MOUTH),
    Face.GAZE_Y: (RIGHT_EYE, MOUTH),
    Face.BREATH: (SHOULDERS, CORNER),
}


@pytest.mark.parametrize("which", list(REGIONS), ids=lambda which: which.name)
@pytest.mark.parametrize("look", range(len(LOOKS)), ids=LOOK_NAMES)
def test_a_parameter_changes_its_own_region(renderer: HeadRenderer, which: Face, look: int) -> None:
    own, other = REGIONS[which]
    rest = draw(renderer, {}, look)
    moved = draw(renderer, {which.name: 1.0}, look)
    assert change(rest, moved, own) > 0.8
    if which is not Face.BREATH:  # the whole head breathes a little
        assert change(rest, moved, other) == 0.0
    assert change(rest, moved, CORNER) == 0.0


@pytest.mark.parametrize(
    ("which", "box"),
    [
        (Face.LIP_LOWER_TUCK, MOUTH),
        (Face.TONGUE_UP, MOUTH),
        (Face.TONGUE_OUT, MOUTH),
        (Face.LIPS_CLOSED, MOUTH),
    ],
    ids=lambda value: value.name if isinstance(value, Face) else "",
)
def test_a_parameter_shows_in_an_open_mouth(renderer: HeadRenderer, which: Face, box: Box) -> None:
    around = {"JAW_OPEN": 0.5}
    rest = draw(renderer, around)
    moved = draw(renderer, {**around, which.name: 1.0})
    assert change(rest, moved, box) > 0.3
    assert change(rest, moved, HAIR) == 0.0


def test_furrowed_brows_show_between_the_eyes(renderer: HeadRenderer) -> None:
    rest, moved = draw(renderer, {}), draw(renderer, {"BROW_FURROW": 1.0})
    assert change(rest, moved, (-0.2, 0.15, 0.2, 0.30)) > 0.8
    assert change(rest, moved, MOUTH) == 0.0


@pytest.mark.parametrize("which", ["HEAD_YAW", "HEAD_PITCH", "HEAD_ROLL", "HEAD_X", "HEAD_Y"])
def test_the_head_moves_as_a_whole(renderer: HeadRenderer, which: str) -> None:
    rest, moved = draw(renderer, {}), draw(renderer, {which: 0.15})
    for box in (HAIR, FACE, MOUTH, LEFT_EYE, RIGHT_EYE):
        assert change(rest, moved, box) > 0.5
    assert change(rest, moved, CORNER) == 0.0


def dark_middle(frame: torch.Tensor, box: Box) -> float:
    """The column where the darkest pixels of a box have their middle, in pixels."""
    plane = luma(frame, box).float()
    weight = (plane.quantile(0.12) - plane).clamp_min(0.0)
    columns = torch.arange(plane.shape[1]).float()
    return float((weight.sum(0) * columns).sum() / weight.sum())


def test_turning_has_parallax(renderer: HeadRenderer) -> None:
    """The mouth, in front, goes much further than the ear, which is beside the neck's axis."""
    at = frame_of(SIZE, SIZE)
    rest, moved = draw(renderer, {}), draw(renderer, {"HEAD_YAW": 0.25})
    wide: Box = (-0.25, -0.26, 0.35, -0.20)
    mouth_px = dark_middle(moved, wide) - dark_middle(rest, wide)
    assert mouth_px > 0.06 * at.scale  # to the face's own left: the picture's right

    def outline(frame: torch.Tensor) -> float:
        rows = luma(frame, (-0.70, 0.01, 0.0, 0.07)).float()
        away = (rows - rows[:, :1]).abs() > 25.0
        return float(away.float().argmax(1).float().mean())

    assert abs(outline(moved) - outline(rest)) < 0.6 * mouth_px


def test_nodding_goes_down_and_gaze_follows_its_sign(renderer: HeadRenderer) -> None:
    box: Box = (0.07, 0.04, 0.30, 0.16)
    left = dark_middle(draw(renderer, {"GAZE_X": 0.8}), box)
    right = dark_middle(draw(renderer, {"GAZE_X": -0.8}), box)
    assert left > right + 2.0

    def mouth_row(frame: torch.Tensor) -> float:
        return float(luma(frame, (-0.08, -0.40, 0.08, -0.12)).sum(1).argmin())

    assert mouth_row(draw(renderer, {"HEAD_PITCH": 0.2})) > mouth_row(draw(renderer, {})) + 3


@pytest.mark.parametrize("look", range(len(LOOKS)), ids=LOOK_NAMES)
def test_closed_lips_show_no_inside(renderer: HeadRenderer, look: int) -> None:
    """Whatever the jaw and the lips do, pressed lips hide the dark, the teeth and the tongue."""
    closed = draw(renderer, {"LIPS_CLOSED": 1.0}, look)
    for wild in (
        {"JAW_OPEN": 1.0}, {"LIP_UPPER_RAISE": 1.0, "LIP_LOWER_DROP": 1.0},
        {"TONGUE_OUT": 1.0, "TONGUE_UP": 1.0, "JAW_OPEN": 0.6}, {"LIP_LOWER_TUCK": 1.0},
    ):  # fmt: skip
        moved = draw(renderer, {"LIPS_CLOSED": 1.0, **wild}, look)
        drawn, calm = luma(moved, OPENING), luma(closed, OPENING)
        assert int(drawn.max()) <= int(calm.max()) + 14, "teeth show"
        dark = int(calm.min()) + 4
        assert int((drawn < dark).sum()) <= int((calm < dark).sum()) * 1.3 + 4, "the inside shows"
    opened = luma(draw(renderer, {"JAW_OPEN": 0.9}, look), OPENING)
    assert int(opened.max()) > int(luma(closed, OPENING).max()) + 14
    assert int(opened.min()) < int(luma(closed, OPENING).min())


@pytest.mark.parametrize("look", range(len(LOOKS)), ids=LOOK_NAMES)
def test_closed_eyes_show_no_white(renderer: HeadRenderer, look: int) -> None:
    def white(frame: torch.Tensor) -> int:
        plane = luma(frame, (0.10, 0.05, 0.26, 0.15))
        return int((plane > 205).sum())

    assert white(draw(renderer, {}, look)) > 20
    assert white(draw(renderer, {"BLINK_LEFT": 1.0}, look)) == 0
    assert white(draw(renderer, {"BLINK_LEFT": 1.0, "GAZE_Y": 1.0, "SQUINT": 1.0}, look)) == 0


@pytest.mark.parametrize("look", range(len(LOOKS)), ids=LOOK_NAMES)
@pytest.mark.parametrize("squint", [0.0, 1.0])
def test_a_blink_changes_nothing_between_the_eyes(
    renderer: HeadRenderer, look: int, squint: float
) -> None:
    bridge: Box = (-0.06, 0.03, 0.06, 0.16)
    rest = luma(draw(renderer, {"SQUINT": squint}, look), bridge)
    for shut in (0.5, 0.8, 1.0):
        blink = {"BLINK_LEFT": shut, "BLINK_RIGHT": shut, "SQUINT": squint}
        assert int((luma(draw(renderer, blink, look), bridge) - rest).abs().max()) <= 1


def test_mouth_shapes_can_be_told_apart(renderer: HeadRenderer) -> None:
    shapes: dict[str, Mapping[str, float]] = {
        "aa": {"JAW_OPEN": 0.9},
        "ee": {"LIPS_WIDE": 0.9, "JAW_OPEN": 0.2, "LIP_LOWER_DROP": 0.4},
        "oo": {"LIPS_ROUND": 1.0, "JAW_OPEN": 0.25},
        "fv": {"LIP_LOWER_TUCK": 1.0, "LIP_UPPER_RAISE": 0.3},
        "th": {"TONGUE_OUT": 1.0, "JAW_OPEN": 0.3},
        "l": {"TONGUE_UP": 1.0, "JAW_OPEN": 0.45},
        "mbp": {"LIPS_CLOSED": 1.0},
        "smile": {"SMILE": 1.0},
    }
    frames = {name: draw(renderer, values) for name, values in shapes.items()}
    names = list(frames)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            assert change(frames[a], frames[b], MOUTH) > 1.0, (a, b)


def test_motion_is_smooth(renderer: HeadRenderer) -> None:
    """Small steps of every parameter make small steps of the picture: nothing pops."""
    steps = 40
    track = torch.zeros(steps, FACE_PARAMETERS)
    way = torch.linspace(0.0, 1.0, steps)
    for name, gain in (("HEAD_YAW", 0.3), ("HEAD_PITCH", -0.2), ("HEAD_ROLL", 0.15),
                       ("JAW_OPEN", 0.9), ("LIPS_WIDE", 0.7), ("BLINK_LEFT", 1.0),
                       ("BLINK_RIGHT", 1.0), ("SMILE", 0.6), ("HEAD_X", 0.2)):  # fmt: skip
        track[:, Face[name]] = way * gain
    frames = torch.cat([renderer.render(row[None], [0], SIZE, SIZE) for row in track])
    moves = [change(a, b) for a, b in pairwise(frames)]
    assert min(moves) > 0.05, "it stands still between steps"
    assert max(moves) < 3.0 * (sum(moves) / len(moves)), moves


def test_looks_differ_everywhere(renderer: HeadRenderer) -> None:
    frames = [draw(renderer, {}, look) for look in range(len(LOOKS))]
    assert len(LOOKS) >= 3
    for i, a in enumerate(frames):
        for b in frames[i + 1 :]:
            for box in (HAIR, FACE, LEFT_EYE, SHOULDERS):
                assert change(a, b, box) > 5.0
            assert (a != b).float().mean() > 0.9


@pytest.mark.parametrize(
    "size", [(64, 64), (256, 256), (250, 130), (130, 322), (640, 360), (360, 640), (512, 512)]
)
def test_every_size_holds_a_whole_head(renderer: HeadRenderer, size: tuple[int, int]) -> None:
    width, height = size
    wild = some_vectors(2)
    wild[1] = 2.0
    frames = renderer.render(torch.cat([torch.zeros(1, FACE_PARAMETERS), wild]), [0] * 3, *size)
    assert frames.shape == (3, height * 3 // 2, width)
    at = frame_of(width, height)
    assert at.x0_px == width / 2
    assert at.y0_px - 0.78 * at.scale >= 0, "the crown is cut off"
    plane = frames[0, :height].float()
    assert plane.std() > 15


def test_the_largest_size() -> None:
    small = HeadRenderer()
    frame = small.render(torch.full((1, FACE_PARAMETERS), -2.0), [1], 1024, 1024)
    assert frame.shape == (1, 1536, 1024)


@pytest.mark.parametrize("size", [(63, 64), (64, 65), (62, 64), (1026, 64), (0, 0), (-2, 64)])
def test_other_sizes_are_refused(renderer: HeadRenderer, size: tuple[int, int]) -> None:
    with pytest.raises(BadSize, match="must be even"):
        check_size(*size)
    with pytest.raises(BadSize):
        renderer.render(torch.zeros(1, FACE_PARAMETERS), [0], *size)


def test_a_wrong_look_says_which_there_are() -> None:
    assert [look_index(name) for name in LOOK_NAMES] == list(range(len(LOOK_NAMES)))
    with pytest.raises(BadLook, match=r"'marble'.*clay, studio, aurora"):
        look_index("marble")


def test_numbers_that_are_none_are_drawn_as_rest(renderer: HeadRenderer) -> None:
    bad = torch.zeros(1, FACE_PARAMETERS)
    bad[0, Face.JAW_OPEN] = float("nan")
    bad[0, Face.HEAD_YAW] = float("inf")
    rest = renderer.render(torch.zeros(1, FACE_PARAMETERS), [0], SIZE, SIZE)
    assert torch.equal(renderer.render(bad, [0], SIZE, SIZE), rest)
    with pytest.raises(ValueError, match="face parameters"):
        renderer.render(torch.zeros(1, FACE_PARAMETERS - 1), [0], SIZE, SIZE)


def test_every_tensor_is_made_on_the_device_that_was_asked_for(renderer: HeadRenderer) -> None:
    """With another default device, one made without saying where would not fit the others."""
    vectors = some_vectors(2)
    expected = renderer.render(vectors, [2, 1], 64, 64)
    with torch.device("meta"):
        drawn = HeadRenderer("cpu").render(vectors, [2, 1], 64, 64)
    assert torch.equal(drawn, expected)
