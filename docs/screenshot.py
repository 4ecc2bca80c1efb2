"""Photograph the page of the service for the README.

Start `shortlist demo --serve`, then run
python docs/screenshot.py http://127.0.0.1:8000/
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parent / "pictures" / "service.png"
SIZE = {"width": 1180, "height": 1130}
EXAMPLE = 2  # of the users that the page offers: one with a short list
WAIT = 60_000  # milliseconds


def photograph(address: str) -> None:
    """Save the view of one user, with the line where the list ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"], timeout=2 * WAIT
        )
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.set_default_timeout(WAIT)
        page.goto(address)
        page.locator("button.chip").nth(EXAMPLE).click()
        page.get_by_text("The list ends here:").wait_for()
        page.evaluate("document.activeElement.blur()")
        page.mouse.move(0, 0)
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    photograph(sys.argv[1])
