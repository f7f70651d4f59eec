"""Draw docs/figures/page.png: the live page in Chromium, while a turned world runs and axes are shown.

python -m tools.page_picture
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from legoswarm.deploy.page import write_page
from tests.chromium import Chromium

with tempfile.TemporaryDirectory() as folder:
    browser = Chromium(Path(folder) / "profile")
    browser.open(write_page(["zoo:spread"], Path(folder) / "page.html"), width=1100, height=740)
    browser.until("app.world.time > 1")
    browser.click("#axes")
    browser.run("turn.value = 30; turn.dispatchEvent(new Event('input'))")
    browser.click("#again")
    browser.until("app.world.time >= 5")
    browser.click("#run")
    browser.run("scrollTo(0, 0)")
    browser.screenshot("docs/figures/page.png")
    browser.close()
