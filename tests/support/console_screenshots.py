"""Take the pictures of the console in the documentation, from the runs of examples/console_demo.py.

LOOPWRIGHT_CHROMIUM=/usr/bin/chromium python tests/support/console_screenshots.py docs/images
"""

import asyncio
import base64
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright

from console_server import serving
from loopwright.console import Console
from waiting import eventually

ROOT = Path(__file__).parents[2]
DESK = {"width": 1180, "height": 760}
PHONE = {"width": 390, "height": 780}


def load_demo() -> Any:
    """Return the module of the example."""
    path = ROOT / "examples" / "console_demo.py"
    spec = importlib.util.spec_from_file_location("console_demo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def take(page: Any, file: Path) -> None:
    """Write what the page shows as WebP."""
    await page.wait_for_timeout(500)
    session = await page.context.new_cdp_session(page)
    found = await session.send(
        "Page.captureScreenshot", {"format": "webp", "quality": 80}
    )
    await asyncio.to_thread(file.write_bytes, base64.b64decode(found["data"]))


async def show(browser: Any, address: str, token: str | None, folder: Path) -> None:
    """Visit the page light, dark and on a phone."""
    start = f"{address}/#token={token}"
    light = await browser.new_page(viewport=DESK, color_scheme="light")
    await light.goto(start)
    await light.click("a[href='#/run/lamps']")
    await light.wait_for_selector(".row .label")
    await take(light, folder / "console-light.webp")
    await light.click(".asks button")
    await take(light, folder / "console-approval.webp")
    dark = await browser.new_page(viewport=DESK, color_scheme="dark")
    await dark.goto(start)
    await dark.click("a[href='#/run/lamps']")
    await dark.click("#tab-plan")
    await dark.wait_for_selector(".picture")
    await take(dark, folder / "console-dark.webp")
    phone = await browser.new_page(viewport=PHONE, color_scheme="light")
    await phone.goto(start)
    await phone.wait_for_selector(".run")
    await take(phone, folder / "console-phone.webp")


async def main(folder: Path) -> None:
    """Have the runs of the example at work, and take the pictures once one waits."""
    demo = load_demo()
    demo.pause = 0.4
    with tempfile.TemporaryDirectory() as place:
        runtime = demo.build_runtime(Path(place, "runs.db"))
        runs = asyncio.create_task(demo.start_runs(runtime))
        await eventually(
            lambda: "waiting" in [info.status for info in runtime.journal.runs()],
            seconds=60,
        )
        console = Console(runtime, user="Ada")
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        with serving(console.app) as address:
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=os.environ["LOOPWRIGHT_CHROMIUM"], args=options
                )
                await show(browser, address, console.token, folder)
                await browser.close()
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
