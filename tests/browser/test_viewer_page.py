"""The page itself, over an imitated service: form, list, moves, reconnecting, trouble, phones."""

import pytest
from playwright.async_api import BrowserContext, Page, expect

from tests.browser.fake_service import FakeLive, FakeService, problem
from tests.browser.synthetic import until
from tests.browser.test_viewer import PROBE, say, watch
from tests.browser.test_viewer import until as until_async

pytestmark = pytest.mark.browser

# A short text may be over before the test looks.
SPOKEN = "#transcript .speaks, #transcript .said"


async def test_a_live_is_created_from_the_form_and_opened(page: Page, service: FakeService) -> None:
    await page.goto(service.base_url)
    await expect(page.locator("#noLives")).to_be_visible()
    await page.get_by_label("Studio").check()
    await page.get_by_label("Name").fill("my live ü")
    await page.get_by_role("button", name="Start").click()
    await expect(page.locator("#connection")).to_have_attribute("data-state", "on")
    assert service.lives["my live ü"].options["look"] == "studio"
    await expect(page.locator("#liveName")).to_have_text("my live ü")
    await page.go_back()
    await expect(page.locator("#lives")).to_contain_text("my live ü")
    await until(lambda: service.whep.viewers() == 0, "leaving the live ends the viewer")
    await page.get_by_role("link", name="my live ü").click()
    await expect(page.locator("#connection")).to_have_attribute("data-state", "on")


async def test_a_move_is_followed_without_a_gap_in_the_picture(
    page: Page, service: FakeService, live: FakeLive, synthetic_url: str
) -> None:
    await watch(page, synthetic_url)
    await expect(page.locator("#factGeneration")).to_contain_text("epoch 1")
    await page.evaluate(
        """() => {
          window.gone = 0;
          const look = () => {
            if (!document.querySelector("video.shown")) window.gone += 1;
            requestAnimationFrame(look);
          };
          look();
        }"""
    )
    old = live.media.egress
    live.move()
    await expect(page.locator("#factGeneration")).to_contain_text("epoch 2")
    await until(lambda: service.whep.viewers(live.media.egress) == 1, "a viewer at the new owner")
    await until(lambda: service.whep.viewers(old) == 0, "none at the old one")
    await _plays(page)
    assert await page.evaluate("window.gone") == 0
    assert service.offers == 2


async def _plays(page: Page) -> None:
    """The picture goes on; by `evaluate`, which the page's content security policy lets pass."""
    before = await page.evaluate("probe.frames()")

    async def more() -> bool:
        return await page.evaluate("probe.frames()") > before + 5

    await until_async(more, "frames")


async def test_a_lost_connection_is_made_again(
    page: Page, service: FakeService, live: FakeLive, synthetic_url: str
) -> None:
    await watch(page, synthetic_url)
    service.trouble[f"POST /v1/lives/{live.live_id}/whep"] = problem(
        503, "The live's worker is not ready yet", "Repeat the request.", retry_after_s=1
    )
    (resource,) = service.whep._viewers
    await service.whep.delete(resource)
    await expect(page.locator("#connection")).to_have_text("Reconnecting")
    await expect(page.locator("#connection")).to_have_attribute("data-state", "on")
    assert service.offers == 2, "the refused one never reached the worker"
    await page.evaluate(PROBE)
    await _plays(page)


async def test_trouble_is_told_with_title_and_detail_and_the_text_is_kept(
    page: Page, service: FakeService, live: FakeLive, synthetic_url: str
) -> None:
    await watch(page, synthetic_url)
    service.trouble[f"POST /v1/lives/{live.live_id}/text"] = problem(
        503, "The broker does not answer", "Nothing was accepted. Repeat the request."
    )
    await say(page, "Hello.")
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text("The broker does not answer")
    await expect(alert).to_contain_text("Nothing was accepted. Repeat the request.")
    await expect(page.locator("#text")).to_have_value("Hello.")
    await expect(page.locator("#transcript .cut")).to_contain_text("Not sent")
    await page.get_by_label("Dismiss this message").click()
    await expect(alert).to_be_hidden()
    await page.press("#text", "Enter")
    await expect(page.locator(SPOKEN)).to_contain_text("Hello.")


async def test_a_closed_live_ends_the_page_politely(
    page: Page, service: FakeService, live: FakeLive, synthetic_url: str
) -> None:
    await watch(page, synthetic_url)
    live.close("idle_timeout")
    await expect(page.locator("#connection")).to_have_text("Ended")
    await expect(page.locator("#transcript")).to_contain_text("Idle timeout")
    await expect(page.locator("#send")).to_be_disabled()
    offers = service.offers
    await page.wait_for_timeout(1500)
    assert service.offers == offers, "no further attempts"


async def test_an_unknown_live_is_said(page: Page, service: FakeService) -> None:
    await page.goto(f"{service.base_url}/watch/nobody")
    await expect(page.get_by_role("alert")).to_contain_text("No such live")
    await expect(page.locator("#connection")).to_have_text("Ended")


async def test_text_is_shown_as_text(page: Page, synthetic_url: str) -> None:
    await watch(page, synthetic_url)
    await say(page, '<img src=x onerror="window.broken=1">')
    await expect(page.locator(SPOKEN)).to_contain_text("<img src=x")
    assert await page.evaluate("window.broken") is None


async def test_shift_enter_makes_a_line_and_nothing_is_sent_empty(
    page: Page, live: FakeLive, synthetic_url: str
) -> None:
    await watch(page, synthetic_url)
    await page.fill("#text", "   ")
    await page.press("#text", "Enter")
    await page.fill("#text", "One.")
    await page.press("#text", "Shift+Enter")
    await page.locator("#text").press_sequentially("Two.")
    await page.press("#text", "Enter")
    await expect(page.locator(SPOKEN)).to_have_text("One.\nTwo.")
    assert live.offset == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_phone(
    page: Page, context: BrowserContext, synthetic_url: str, scheme: str
) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    await watch(page, synthetic_url)
    wide = await page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 360
    for name in ("#send", "#interrupt", "#sound"):
        box = await page.locator(name).bounding_box()
        assert box is not None
        assert box["height"] >= 32
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360


async def test_sound_can_be_switched(page: Page, synthetic_url: str) -> None:
    await watch(page, synthetic_url)
    sound = page.locator("#sound")
    await expect(sound).to_have_attribute("aria-pressed", "true")
    await sound.click()
    await expect(sound).to_have_attribute("aria-pressed", "false")
    assert await page.evaluate("document.querySelector('video.shown').muted") is True
    await sound.click()
    assert await page.evaluate("document.querySelector('video.shown').muted") is False
