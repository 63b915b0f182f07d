import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpu_stages.config import (
    BUNDLED,
    RING_NAMES,
    BadStagesConfig,
    load_stages_config,
    parse_stages_config,
)
from gpu_stages.header import PARTS_MAX
from gpu_stages.memory import round_up
from gpu_stages.stage_main import BadStageClass, load_class

HERE = Path(__file__).parent


def parsed(text: str) -> Any:
    return parse_stages_config(tomllib.loads(text))


def test_without_a_file_the_bundled_stages_run() -> None:
    assert load_stages_config(None) == BUNDLED
    assert parsed("") == BUNDLED
    assert [stage.name for stage in BUNDLED.stages] == ["speech", "motion", "render", "encode"]


def test_everything_can_be_set() -> None:
    config = parsed("""
        live_slots = 3
        [video]
        width_px_max = 1024
        height_px_max = 768
        [render]
        class = "my.models:Head"
        device = "cuda:1"
        batch_max = 4
        wait_us_max = 0
        threads = 2
        nice = -5
        ready_s_max = 300
        [render.settings]
        checkpoint = "head.pt2"
        layers = [1, 2]
        [rings]
        picture_slots = 5
        voice_bytes = 100000
    """)
    render = config.stages[2]
    assert (render.class_path, render.device) == ("my.models:Head", "cuda:1")
    assert (render.batch_max, render.wait_us_max, render.threads, render.nice) == (4, 0, 2, -5)
    assert render.ready_s_max == 300
    assert render.settings == {"checkpoint": "head.pt2", "layers": [1, 2]}
    assert config.stages[0] == BUNDLED.stages[0]
    specs = config.ring_specs()
    assert specs["picture"].slots == 5
    assert specs["picture"].payload_bytes >= 1024 * 768 * 3 + 1920
    assert specs["voice"].payload_bytes >= 100_000


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("live_slot = 3", "live_slot;"),
        ("[video]\nwidth = 3", "video.width;"),
        ("[speech]\nclas = 'a:B'", "speech.clas;"),
        ("[rings]\nvoices_slots = 3", "rings.voices_slots;"),
        ("[spech]\nclass = 'a:B'", "spech;"),
        ("live_slots = 0", "live_slots is 0"),
        ("live_slots = true", "live_slots is True"),
        ("live_slots = '3'", "live_slots is '3'"),
        ("[video]\nwidth_px_max = 100000", "video.width_px_max is 100000"),
        ("[speech]\nclass = 'nothing'", "speech.class is 'nothing'"),
        ("[speech]\nclass = 3", "speech.class is 3"),
        ("speech = 3", "speech must be a table"),
        ("[speech]\nsettings = 3", "speech.settings must be a table"),
        ("[speech.settings]\nday = 2026-11-29", "speech.settings holds a value"),
        ("live_slots = 9\n[rings]\ntext_slots = 8", "rings.text_slots is 8"),
    ],
)
def test_a_mistake_is_named(text: str, named: str) -> None:
    with pytest.raises(BadStagesConfig) as refused:
        parsed(text)
    assert named in str(refused.value)


def test_an_unknown_key_comes_with_the_known_ones() -> None:
    with pytest.raises(BadStagesConfig, match=r"known here: .*live_slots.*speech.*video"):
        parsed("lives = 3")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    broken = tmp_path / "broken.toml"
    broken.write_text("live_slots = = 3")
    for path in (missing, broken):
        with pytest.raises(BadStagesConfig, match=path.name):
            load_stages_config(path)
    good = tmp_path / "good.toml"
    good.write_text("live_slots = 2")
    assert load_stages_config(good).live_slots == 2


def test_the_worker_s_device_is_for_stages_that_name_none() -> None:
    config = parsed("[render]\ndevice = 'cuda:1'").on_device("cuda:0")
    assert [s.device for s in config.stages] == ["cuda:0", "cuda:0", "cuda:1", "cuda:0"]


@pytest.mark.parametrize("live_slots", [1, 16, 1024])
def test_slots_hold_the_largest_message_and_every_live_has_its_share(live_slots: int) -> None:
    specs = parsed(f"live_slots = {live_slots}").ring_specs()
    assert tuple(specs) == RING_NAMES
    assert specs["text"].slots >= live_slots
    parts_of_picture = (1920, 512 * 512 * 3)
    assert specs["picture"].payload_bytes >= sum(map(round_up, parts_of_picture))
    assert specs["motion"].payload_bytes >= PARTS_MAX * 64 + 1920
    assert all(1 <= spec.slots <= 4096 for spec in specs.values())


def test_a_class_is_found_in_a_module_or_in_a_file() -> None:
    assert load_class("tests.unit.gpu_stages.stage_kit:KitSpeech").__name__ == "KitSpeech"
    assert load_class(f"{HERE / 'stage_kit.py'}:KitRender").__name__ == "KitRender"


@pytest.mark.parametrize(
    "class_path",
    [
        "no_such_module:Stage",
        f"{HERE / 'stage_kit.py'}:Missing",
        f"{HERE / 'stage_kit.py'}:NotAStage",
        "missing.py:Stage",
        "nothing",
        ":Stage",
    ],
)
def test_a_class_that_is_none_is_refused(class_path: str) -> None:
    with pytest.raises(BadStageClass):
        load_class(class_path)
