"""The examples of own models, each in the real pipeline: voice, processes, codecs."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest

from gpu_stages.config import StagesConfig, load_stages_config
from gpu_stages.runtime import BoundLive, PipelineRuntime, Segment, StageFailedToStart, StageTrouble
from schemas.media import MediaTick, TickFlag
from schemas.options import LiveOptions
from tests.support.wait import until

EXAMPLES = Path(__file__).parents[2] / "examples" / "own_models"
TEXT = "Papa put a big map up."


READY_S_MAX = 400
"""On a machine that is busy with other tests, too."""


def patient(config: StagesConfig) -> StagesConfig:
    return replace(
        config, stages=tuple(replace(stage, ready_s_max=READY_S_MAX) for stage in config.stages)
    )


class Speaking:
    """A pipeline with one live that says one sentence, as fast as the stages can."""

    def __init__(self, config: StagesConfig, size_px: int) -> None:
        self.runtime = PipelineRuntime(replace(patient(config), live_slots=2))
        self.size_px = size_px
        self.ticks: list[MediaTick] = []
        self.troubles: list[StageTrouble] = []

    def on_tick(self, tick: MediaTick) -> None:
        self.ticks.append(tick)
        self.runtime.set_credit(tick.live_slot, tick.frame_index + 8)

    def ended(self) -> bool:
        return any(tick.flags & TickFlag.LAST_OF_SEGMENT for tick in self.ticks)

    async def speak(self) -> None:
        await self.runtime.start(self.on_tick, self.troubles.append)
        options = LiveOptions(width_px=self.size_px, height_px=self.size_px)
        bound = self.runtime.bind(BoundLive("anna", 1, options, seed=7, start_frame=0))
        self.runtime.set_credit(bound.live_slot, 8)
        self.runtime.feed(bound.live_slot, Segment(1, 0, TEXT, skip_samples=0, seed=7))
        await until(self.ended, timeout_s=120, what="the end of the sentence")

    def pictures(self) -> list[np.ndarray]:
        decoder = av.CodecContext.create("h264", "r")
        frames = [f for t in self.ticks for f in decoder.decode(av.Packet(t.video))]
        return [frame.to_ndarray(format="rgb24") for frame in frames]


def export(path: Path) -> None:
    """What the example's script does."""
    spec = importlib.util.spec_from_file_location("export_cartoon", EXAMPLES / "export_cartoon.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.export(path)


async def test_a_class_of_one_s_own_moves_the_head() -> None:
    speaking = Speaking(load_stages_config(EXAMPLES / "nodding.toml"), 64)
    try:
        await speaking.speak()

        def nods() -> float:
            stages = speaking.runtime.stats()["stages"]
            assert isinstance(stages, dict)
            return float(stages["motion"].get("stage_nods", 0))

        await until(nods, what="nods in the figures")
        assert speaking.troubles == []
        spoken = [tick for tick in speaking.ticks if tick.segment_id == 1]
        assert len(spoken) > 25
        assert [tick.frame_index for tick in speaking.ticks] == list(range(len(speaking.ticks)))
        assert len(speaking.pictures()) >= len(spoken)
    finally:
        await speaking.runtime.close()


async def test_an_exported_program_draws_the_live(tmp_path: Path) -> None:
    export(tmp_path / "cartoon.pt2")
    (tmp_path / "cartoon.toml").write_text((EXAMPLES / "cartoon.toml").read_text())
    speaking = Speaking(load_stages_config(tmp_path / "cartoon.toml"), 256)
    try:
        await speaking.speak()
        assert speaking.troubles == []
        pictures = speaking.pictures()
        ground = pictures[0][:24, :24].reshape(-1, 3).mean(0)
        assert np.abs(ground - (118, 160, 178)).max() < 8, "the cartoon's background"
        mouth = [picture[168:200, 112:144].astype(float).mean() for picture in pictures]
        assert max(mouth) - min(mouth) > 40, "the mouth opens and closes"
    finally:
        await speaking.runtime.close()


async def test_a_program_that_is_not_there_stops_the_start_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "cartoon.toml").write_text((EXAMPLES / "cartoon.toml").read_text())
    runtime = PipelineRuntime(patient(load_stages_config(tmp_path / "cartoon.toml")))
    with pytest.raises(
        StageFailedToStart, match=r"stage render did not start.*cartoon\.pt2: no such"
    ):
        await runtime.start(lambda tick: None, lambda trouble: None)
    await runtime.close()
