"""A person watches a live: the picture moves, the mouth speaks, the sound is heard, and stops.

Nothing here knows what serves the page: `viewer_url` is all these tests need.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

pytestmark = pytest.mark.browser

PROBE = (Path(__file__).parent / "probe.js").read_text()
MOUTH = [0.32, 0.58, 0.36, 0.30]
LONG_TEXT = (
    "Good morning, and welcome to the museum. On your left you see the oldest clock of the city, "
    "and behind it, made by the same hand, the astronomical dial that made its master famous. "
    "Please follow me to the next room, where the bells are kept, and mind the step at the door."
)
HEARD_RMS = 0.01
SILENT_RMS = 0.002


async def watch(page: Page, url: str) -> None:
    """Open the page and wait until the picture plays."""
    await page.goto(url)
    await expect(page.locator("#connection")).to_have_attribute("data-state", "on", timeout=60_000)
    await page.evaluate(PROBE)


async def say(page: Page, text: str) -> None:
    await page.fill("#text", text)
    await page.press("#text", "Enter")


async def loud(page: Page, ms: int = 400) -> float:
    """Median loudness over a while."""
    return statistics.median(await page.evaluate(f"probe.loudness({ms})"))


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = 30) -> float:
    """Wait for a condition; returns how long it took."""
    start = time.monotonic()
    while not await condition():
        assert time.monotonic() - start < seconds, f"waited {seconds} s for: {what}"
        await asyncio.sleep(0.02)
    return time.monotonic() - start


async def test_frames_advance(page: Page, viewer_url: str) -> None:
    await watch(page, viewer_url)
    first = await page.evaluate("probe.frames()")
    await asyncio.sleep(2)
    shown = await page.evaluate("probe.frames()") - first
    assert shown >= 30, f"{shown} frames in two seconds of a live of 25 per second"


async def test_the_mouth_moves_while_speech_plays_and_rests_in_silence(
    page: Page, viewer_url: str
) -> None:
    await watch(page, viewer_url)
    (quiet,) = await page.evaluate(f"probe.motion([{MOUTH}], 1500)")
    await say(page, LONG_TEXT)
    await expect(page.locator("#speaking")).to_have_attribute("data-on", "true")
    (spoken,) = await page.evaluate(f"probe.motion([{MOUTH}], 3000)")
    assert spoken > 2 * quiet + 0.3, f"speaking {spoken:.2f}, silent {quiet:.2f} grey levels"
    await page.click("#interrupt")
    await expect(page.locator("#speaking")).to_have_attribute("data-on", "false")
    await asyncio.sleep(1)
    (rested,) = await page.evaluate(f"probe.motion([{MOUTH}], 1500)")
    assert rested < spoken / 2, f"after the interrupt {rested:.2f}, speaking {spoken:.2f}"


async def test_speech_is_heard_and_an_interrupt_silences_it(page: Page, viewer_url: str) -> None:
    await watch(page, viewer_url)
    assert max(await page.evaluate("probe.loudness(500)")) < HEARD_RMS, "an idle live is silent"
    await say(page, LONG_TEXT)

    async def heard() -> bool:
        return max(await page.evaluate("probe.loudness(60)")) > HEARD_RMS

    async def silent() -> bool:
        return max(await page.evaluate("probe.loudness(60)")) < SILENT_RMS

    await until(heard, "speech")
    found = await page.evaluate("probe.loudness(1500)")
    share = sum(level > HEARD_RMS for level in found) / len(found)
    assert share > 0.4, f"speech in {share:.0%} of a second and a half"
    await page.click("#interrupt")
    took = await until(silent, "silence", 10)
    assert took < 2.0, f"silence {took:.1f} s after the click"
    assert await loud(page, 600) < SILENT_RMS, "and it stays silent"


async def test_the_page_says_what_is_spoken_and_how_long_it_took(
    page: Page, viewer_url: str
) -> None:
    await watch(page, viewer_url)
    await loud(page, 200)
    text = "The museum opens at nine, and the last tour of the day begins at a quarter to five."
    await say(page, text)
    await expect(page.locator("#caption")).to_contain_text("museum opens at nine")
    await expect(page.locator("#transcript")).to_contain_text("museum opens at nine")
    await expect(page.locator("#factSound")).to_contain_text("ms")
    await expect(page.locator("#speaking")).to_have_attribute("data-on", "false")
    await expect(page.locator("#transcript .said").first).to_contain_text("museum opens at nine")
    await expect(page.locator("#factFps")).to_contain_text("/s")
    await expect(page.locator("#factGeneration")).to_contain_text("epoch")
