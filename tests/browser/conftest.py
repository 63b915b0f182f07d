"""Chromium, and a live to watch with it.

`viewer_url` is the address of a live's page: of synthetic media behind an imitated service, and of
the whole system with its stages.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import BrowserContext, Page, async_playwright, expect

from tests.browser.fake_service import FakeLive, FakeService, fake_service
from tests.support.system import System

CHROMIUM = Path(os.environ.get("DHSCHED_CHROMIUM", "/usr/bin/chromium"))
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--autoplay-policy=no-user-gesture-required", "--mute-audio",
    "--use-fake-device-for-media-stream",
]  # fmt: skip
WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[BrowserContext]:
    """A fresh profile. Without Chromium the test is skipped, or fails where it is required."""
    if not CHROMIUM.exists():
        missing = f"Chromium is not at {CHROMIUM}: install it, or name it in DHSCHED_CHROMIUM"
        if os.environ.get("DHSCHED_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch_persistent_context(
            tmp_path / "profile",
            executable_path=CHROMIUM,
            headless=True,
            args=ARGUMENTS,
            viewport={"width": 1200, "height": 800},
        )
        opened.set_default_timeout(WAIT_MS)
        yield opened
        await opened.close()


@pytest.fixture
async def page(context: BrowserContext) -> AsyncIterator[Page]:
    """The tab; the test fails when the page's script fails."""
    tab = context.pages[0]
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    yield tab
    assert errors == [], "the page's script failed"


@pytest.fixture
async def service() -> AsyncIterator[FakeService]:
    async with fake_service() as served:
        yield served


@pytest.fixture
async def live(service: FakeService) -> FakeLive:
    return service.create("guide-7", {"look": "clay"})


@pytest.fixture
def synthetic_url(service: FakeService, live: FakeLive) -> str:
    """The page of an open, silent live of the imitated service."""
    return f"{service.base_url}/watch/{live.live_id}"


@pytest.fixture(params=["synthetic", "system"])
def viewer_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The page of an open, silent live: of the imitated service, and of the whole system."""
    if request.param == "synthetic":
        yield request.getfixturevalue("synthetic_url")
        return
    system: System = request.getfixturevalue("system")
    with httpx.Client(base_url=system.machine.dispatch_url, timeout=20) as http:
        created = http.post("/v1/lives", json={}).raise_for_status().json()
        yield f"{system.machine.dispatch_url}/watch/{created['live_id']}"
        http.delete(f"/v1/lives/{created['live_id']}").raise_for_status()
