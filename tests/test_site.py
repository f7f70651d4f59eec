"""The documents as a site: built strictly, its links followed, its pages opened and searched in a real browser."""

import functools
import http.server
import importlib
import os
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import jax
import jax.numpy as jnp
import pytest

from legoswarm.cli import COMMANDS
from legoswarm.cli.options import make_parser
from legoswarm.evaluate.episodes import episode_figures, play
from legoswarm.learn.algorithms.algorithm import ALGORITHMS
from legoswarm.learn.curves import METRICS
from legoswarm.learn.train import configure, make_train
from legoswarm.policies.networks.roles import make_policies
from legoswarm.policies.policy import POLICIES
from legoswarm.tasks.task import TASKS
from tests import tiny  # noqa: F401, registers a policy and a task
from tests.chromium import Chromium
from tools.site_reference import commands, options

ROOT = Path(__file__).parent.parent


class Html(HTMLParser):
    """A page's links, what it fetches by itself, and its anchors."""

    def __init__(self, path):
        super().__init__()
        self.links, self.fetched, self.anchors = [], [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found["id"]} if "id" in found else set()
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif source := found.get("src") or (tag == "link" and found.get("href")):
            self.fetched.append(source)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; what the generator warns of is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def address(site):
    """Where a server on this machine has the site."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def browser(tmp_path):
    chromium = Chromium(tmp_path / "profile")
    yield chromium
    chromium.close()


def test_every_link_leads_somewhere_and_nothing_is_fetched_from_outside(site):
    pages = {path: Html(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 30
    for path, page in pages.items():
        assert not [source for source in page.fetched if "//" in source], path
        for link in [*page.links, *page.fetched]:
            if "//" not in link:
                name, _, anchor = unquote(link).partition("#")
                target = Path(os.path.normpath(path.parent / name)) if name else path
                assert target.is_file(), f"{path.relative_to(site)}: {link}"
                assert target not in pages or anchor in pages[target].anchors, f"{path.relative_to(site)}: {link}"


def test_every_page_fits_on_phones_and_desktops_and_complains_of_nothing(site, address, browser):
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    for page in (page for page in pages if not page.startswith("files/")):
        browser.open(f"{address}/{page}", width=1400)
        assert browser.run("document.documentElement.scrollWidth") <= 1400, page
        browser.call("Emulation.setDeviceMetricsOverride", width=360, height=900, deviceScaleFactor=1, mobile=False)
        assert browser.run("document.documentElement.scrollWidth") <= 360, page
        assert browser.run("[...document.images].every(image => image.naturalWidth)"), page
        assert browser.errors == [], page


def test_the_search_finds_what_a_reader_types(address, browser):
    browser.open(f"{address}/index.html")
    browser.click("input[data-md-component=search-query]")
    for letter in "explained_variance":
        browser.press(letter)
    first = ".md-search-result__link"
    browser.until(f"document.querySelector('{first}')?.href.includes('reference/metrics.html')")  # results follow keys
    browser.click(first)
    browser.until("document.title.startsWith('Metrics') && document.readyState === 'complete'")
    assert browser.errors == []


@pytest.mark.parametrize("algorithm", ALGORITHMS.names())
def test_the_reference_explains_every_metric(algorithm):
    program = make_train(configure("yard", "tiny", algorithm, steps=12, envs=2, rollout=6))
    rows = jax.eval_shape(lambda key: program.advance(program.init(key), jnp.int32(1))[1], jax.random.key(0))
    assert {name.replace("agent/", "ROLE/") for name in rows} <= set(METRICS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_has_every_option(name):
    command = getattr(importlib.import_module(f"legoswarm.cli.{COMMANDS[name][0]}"), name.capitalize())
    groups = command.groups([]) if hasattr(command, "groups") else []
    words = {word for action in make_parser(command, "", [], groups)._actions for word in action.option_strings}
    text = commands().split(f"## legoswarm {name}\n")[1].split("\n## ")[0]
    text += options() if "options.md" in text else ""
    assert [word for word in words - {"-h", "--help", "--import", "--debug"} if f"`{word}" not in text] == []


@pytest.mark.parametrize("name", ["spread", "tag", "navigation"])
def test_the_guide_explains_every_column_of_an_evaluation(name):
    task = TASKS.make(name)

    def figures(key):
        policies = make_policies(POLICIES.make("mappo"), task.layout, key=key)
        return episode_figures(task, play(task, {role: p.actor for role, p in policies.items()}, task.reset(key)))

    text = (ROOT / "docs/train.md").read_text()
    assert [column for column in jax.eval_shape(figures, jax.random.key(0)) if f"`{column}`" not in text] == []
