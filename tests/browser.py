"""Pages are opened in a real browser where one is installed, and always where CI=true."""

import json
import os
import re
import shutil
import subprocess
from html import unescape

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars --window-size=1100,900"""
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

# Notes errors from the first line on; when all is loaded, plays the first animation for a while and looks around.
LISTEN = """<script>
window.errors = []; window.onerror = message => { errors.push(String(message)); };
console.error = console.warn = (...words) => { errors.push(words.join(" ")); };
addEventListener("unhandledrejection", event => { errors.push(String(event.reason)); });
</script>"""
LOOK = """<script>
addEventListener("load", () => {
  const button = document.querySelector(".player:not([data-auto]) button");
  const steps = () => [...document.querySelectorAll(".player[data-auto] output")].map(output => output.textContent);
  const before = steps();
  if (button) button.click();
  setTimeout(() => {
    const size = node => { const box = node.getBoundingClientRect(); return [box.width, box.height]; };
    const all = name => [...document.querySelectorAll(name)];
    document.body.dataset.seen = JSON.stringify({
      errors, moved: steps().filter((text, at) => text !== before[at]).length,
      players: document.documentElement.dataset.players,
      images: all("img").map(image => [...size(image), image.naturalWidth]),
      drawings: all(".player svg").map(size),
      first: button ? [button.textContent, button.parentNode.querySelector("output").textContent] : [],
      places: all(".body").map(body => body.getAttribute("transform")),
      crosses: all(".cross").map(cross => cross.style.display),
      wide: document.documentElement.scrollWidth - innerWidth,
    });
  }, 1050);
});
</script>"""


def in_ci():
    """Whether a machine runs the tests, which then must have a browser."""
    return os.environ.get("CI") == "true"


def find_browser():
    """The browser; where there is none a test fails or is skipped."""
    if BROWSER is None:
        give_up = pytest.fail if in_ci() else pytest.skip  # where nobody reads skips, a page must not go unopened
        give_up(f"no browser is installed: none of {', '.join(NAMES)}")
    return BROWSER


def opened(page, folder, width=1100):
    """What a browser that is so wide sees of a page a second after an animation was started."""
    browser = find_browser()
    file = folder / "opened.html"
    file.write_text(page.replace("<head>", "<head>" + LISTEN, 1).replace("</body>", LOOK + "</body>"))
    flags = [
        f"--window-size={width},900",
        "--virtual-time-budget=4000",
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
    ]
    command = [browser, *QUIET.split(), *flags, file.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    seen = re.search(r'data-seen="([^"]*)"', dom)
    assert seen, dom[-2000:]
    return json.loads(unescape(seen[1]))
