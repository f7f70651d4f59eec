"""Pages are taken apart: tags that fit together, and nothing that is fetched from elsewhere."""

import base64
import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

VOID = ("meta", "img", "br", "input")


class Page(HTMLParser):
    """What a page is made of and refers to."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids, self.images, self.data = [], [], [], [], []
        self.count = Counter()

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("type")))
        self.count[tag] += 1
        for name, value in attrs:
            if name in ("src", "href", "srcset", "data", "action", "poster", "xlink:href"):
                (self.images if tag == "img" else self.links).append(value)
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_startendtag(self, tag, attrs):
        self.count[tag] += 1

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == ("script", "application/json"):
            self.data.append(data)


def check_page(text):
    """The page, which is whole: every tag is closed, links stay inside, pictures are inside."""
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    for image in page.images:
        kind, data = image.split(",", 1)
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data, validate=True).startswith(b"\x89PNG")
    for word in ("http:", "https:", "url(", "@import", "//cdn"):
        assert word not in text
    return page


def speed_table():
    """The table of docs/page.md, from what tools/page_speed.py measured."""
    measured = json.loads((Path(__file__).parent.parent / "results/speed/page.json").read_text())
    lines = [
        "| agents | how far they see | entities that one sees | frames a second | steps a second |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in measured["rows"]:
        sight = "everything" if row["sensing_radius"] is None else f"{row['sensing_radius']:.1f}"
        rates = f"{row['frames_per_second']:.0f} | {row['steps_per_second']:.1f}"
        lines.append(f"| {row['agents']:,} | {sight} | {row['entities_seen']:.0f} | {rates} |")
    return "\n".join(lines)
