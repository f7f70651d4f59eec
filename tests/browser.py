"""Pages are opened in a real browser where one is installed, and always where CI=true."""

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars --window-size=1100,900"""
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

# Starts the first animation that waits, opens all that is folded, and looks around a second later.
LOOK = """(async () => {
  const button = document.querySelector(".player:not([data-auto]) button");
  const steps = () => [...document.querySelectorAll(".player[data-auto] output")].map(output => output.textContent);
  const before = steps();
  if (button) button.click();
  for (const details of document.querySelectorAll("details")) details.open = true;
  await new Promise(wait => setTimeout(wait, 1050));
  const size = node => { const box = node.getBoundingClientRect(); return [box.width, box.height]; };
  const all = name => [...document.querySelectorAll(name)];
  return {
    moved: steps().filter((text, at) => text !== before[at]).length,
    players: document.documentElement.dataset.players,
    images: all("img").map(image => [...size(image), image.naturalWidth]),
    drawings: all(".player svg").map(size),
    first: button ? [button.textContent, button.parentNode.querySelector("output").textContent] : [],
    places: all(".body").map(body => body.getAttribute("transform")),
    crosses: all(".cross").map(cross => cross.style.display),
    tables: all(".table").flatMap(box => [...box.querySelectorAll("td:first-child")].map(
      cell => cell.scrollWidth / box.clientWidth)),
    wide: document.documentElement.scrollWidth,
    inner: innerWidth,
  };
})()"""


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
    """What a browser that is so wide sees of a page a second after an animation was started, and where a link leads."""
    from tests.chromium import Chromium  # which needs this module

    file = folder / "opened.html"
    file.write_text(page)
    browser = Chromium(folder / "profile")
    try:
        browser.open(file, width, touch=width < 500)
        seen = browser.run(LOOK)
        browser.click("nav a:last-of-type")
        reached = browser.run("[location.hash, document.querySelector(':target').getBoundingClientRect().y]")
    finally:
        browser.close()
    assert seen["inner"] == width
    return seen | {"errors": browser.errors, "reached": reached}
