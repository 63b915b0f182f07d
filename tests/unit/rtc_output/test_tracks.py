"""The bound of a viewer's queues: sound loses its oldest, pictures go on at a key frame only."""

import asyncio

import pytest
from aiortc.mediastreams import MediaStreamError

from rtc_output.tracks import (
    AUDIO_PACKETS_MAX,
    AUDIO_TIME_BASE,
    PICTURES_MAX,
    AudioPackets,
    VideoPackets,
)
from rtc_output.units import TICK_US, MediaUnit


def unit(frame: int, *, keyframe: bool = False) -> MediaUnit:
    return MediaUnit(
        frame_index=frame,
        half=0,
        opus=b"o%d" % frame,
        video=b"v%d" % frame,
        keyframe=keyframe,
        media_us=frame * TICK_US,
        stream_us=frame * TICK_US,
        due_us=frame * TICK_US,
    )


async def test_packets_carry_their_rtp_time() -> None:
    audio, video = AudioPackets(lambda: 0), VideoPackets(lambda: 0, lambda: None)
    audio.put(unit(25))
    video.put(unit(25, keyframe=True))
    sound, picture = await audio.recv(), await video.recv()
    assert (bytes(sound), sound.pts, sound.time_base) == (b"o25", 48_000, AUDIO_TIME_BASE)
    assert (bytes(picture), picture.pts) == (b"v25", 90_000)
    assert picture.is_keyframe


async def test_sound_that_is_not_fetched_loses_its_oldest() -> None:
    audio = AudioPackets(lambda: 0)
    for frame in range(AUDIO_PACKETS_MAX + 3):
        audio.put(unit(frame))
    assert audio.dropped == 3
    assert bytes(await audio.recv()) == b"o3"


async def test_pictures_that_are_not_fetched_go_up_to_the_next_key_frame() -> None:
    asked: list[int] = []
    video = VideoPackets(lambda: 0, lambda: asked.append(1))
    video.put(unit(0))
    assert video.dropped == 1, "nothing before the first key frame"
    video.put(unit(1, keyframe=True))
    for frame in range(2, PICTURES_MAX + 1):
        video.put(unit(frame))
    assert asked == []
    video.put(unit(50))
    assert asked == [1]
    for frame in range(51, 60):
        video.put(unit(frame))
    assert asked == [1], "asked once, not for every picture"
    assert video.dropped == 1 + PICTURES_MAX + 10
    video.put(unit(60, keyframe=True))
    video.put(unit(61))
    assert [bytes(await video.recv()) for _ in range(2)] == [b"v60", b"v61"]


async def test_a_key_frame_that_meets_a_full_queue_replaces_it() -> None:
    asked: list[int] = []
    video = VideoPackets(lambda: 0, lambda: asked.append(1))
    for frame in range(PICTURES_MAX):
        video.put(unit(frame, keyframe=frame == 0))
    video.put(unit(99, keyframe=True))
    assert bytes(await video.recv()) == b"v99"
    assert asked == []


async def test_lateness_is_that_of_the_packet_last_taken() -> None:
    now_us = 0
    audio = AudioPackets(lambda: now_us)
    audio.put(unit(1))
    now_us = TICK_US + 7_000
    await audio.recv()
    assert audio.late_us == 7_000


async def test_a_stopped_track_ends_whoever_waits() -> None:
    audio = AudioPackets(lambda: 0)
    waiting = asyncio.create_task(audio.recv())
    await asyncio.sleep(0)
    audio.stop()
    with pytest.raises(MediaStreamError):
        await waiting
    audio.put(unit(1))
    with pytest.raises(MediaStreamError):
        await audio.recv()
