"""The report: tables, claims and pictures from hand-made results; one page that needs nothing else."""

import json
from html.parser import HTMLParser

import pytest

from legoswarm.files import FileError
from legoswarm.studies.claims import CLAIMS, FAILS, HOLDS, OPEN, decide
from legoswarm.studies.report import make_page, write_report
from legoswarm.studies.results import Results

NOISE = (-0.4, 0.1, 0.3)  # of three seeds


def made(study, name, *, label=None, rows=(), **fields):
    """A part's result as `run.py` writes it."""
    return {
        "study": study,
        "part": name,
        "label": label or name,
        "scale": "full",
        "command": f"legoswarm study {study} <here>",
        "runs": [f"run-{study}-{name}"],
        "hardware": {"device": "cpu: cpu"},
        "content": {"policies": [{"task": {"agents": 3}}]},
        "rows": list(rows),
        **fields,
    }


def seeds(mean, **fields):
    """Rows of three seeds around a mean."""
    return [
        {"agents": 3, "seed": at, "episodes": 10, "return_2c": mean + noise, "return_1c": mean + 1, **fields}
        for at, noise in enumerate(NOISE)
    ]


def curve(*means, figure="return_2c", steps=(0.5e6, 1e6, 3e6, 5e6)):
    """A learning curve of three seeds."""
    values = [[mean + noise for noise in NOISE] for mean in means]
    return {"figure": figure, "steps": list(steps), "values": values}


@pytest.fixture
def results():
    """LEGO first, MAPPO-local as good as MAPPO, PIC not the second; the rest not run."""
    spread = {
        "lego": made("spread-3", "lego", rows=seeds(-20.0), curve=curve(-60, -30, -21, -20), train_seconds=60.0),
        "mappo": made("spread-3", "mappo", rows=seeds(-40.0), curve=curve(-90, -70, -50, -40), train_seconds=30.0),
        "mappo-local": made("spread-3", "mappo-local", rows=seeds(-40.1), curve=curve(-80, -70, -50, -40)),
        "mappo-gnn": made("spread-3", "mappo-gnn", rows=seeds(-30.0), curve=curve(-80, -70, -50, -30)),
    }
    task = {"name": "tag", "pursuers": 2, "evaders": 1, "obstacles": 1}
    positions = [[[0.1 * t, 0.0], [0.0, 0.1 * t], [0.5, 0.5], [-0.5, 0.2]] for t in range(5)]
    drawn = [{"title": "after 5e6 steps", "task": task, "positions": positions}]
    chase = curve(50, 100, 70, 60, figure="pursuer_return")
    rows = [{"failure": kind, "agents": 3, "episodes": 1000, "seed": 0, "captures_after": c, "captures_after_se": 0.05,
             "survivors_captures": c, "survivors_captures_se": 0.05}
            for kind, c in (("without", 3.0), ("kept", 2.0), ("removed", 2.05))]  # fmt: skip
    times = {"train_seconds": 100.0, "steps_per_second": 2e4, "steps": 2_000_000, "trained_on": "gpu: H200"}
    sizes = [row for n, mean in ((2, -10), (3, -21), (6, -110)) for row in seeds(mean, agents=n)]
    free = seeds(-1000.0, limit="none")
    return Results(
        {
            "spread-3": spread,
            "tag": {"lego": made("tag", "lego", curve=chase, trajectories=drawn)},
            "agent-failure": {"lego": made("agent-failure", "lego", rows=rows)},
            "run-time": {
                "lego-3": made("run-time", "lego-3", label="lego", **{**times, "train_seconds": 150.0}),
                "mappo-3": made("run-time", "mappo-3", label="mappo", **times),
            },
            "generalization": {"lego": made("generalization", "lego", rows=[*sizes, *free])},
        }
    )


def verdicts(results):
    return {claim.text: decide(claim, results) for claim in CLAIMS}


def test_claims_are_decided_from_disjoint_intervals(results):
    found = verdicts(results)
    assert found["MAPPO-local improves over vanilla MAPPO."][0] == OPEN
    # Graphs alone are clearly above canonicalization alone here: the opposite of the claim.
    gnn = next(text for text in found if text.startswith("MAPPO-GNN performs poorly"))
    assert found[gnn][0] == FAILS
    # PIC and SEGNN are missing, and nothing speaks against it.
    verdict, evidence = found["Three agents: LEGO-MAPPO achieves the highest final reward."]
    assert verdict == OPEN
    assert "pic: not run yet" in evidence
    assert found["LEGO-MAPPO's reward in Tag peaks near 1e6 interactions and then decreases."][0] == HOLDS
    assert found["The remaining pursuer goes on after the failure."][0] == HOLDS
    kept = next(text for text in found if text.startswith("The stationary pursuer"))
    assert found[kept][0] == OPEN
    assert found["MAPPO and PIC cannot be evaluated at another team size."][0] == HOLDS


def test_a_claim_holds_when_all_its_comparisons_do(results):
    for name, mean in (("pic", -35.0), ("segnn-planar", -33.0)):
        results.parts["spread-3"][name] = made("spread-3", name, rows=seeds(mean))
    assert verdicts(results)["Three agents: LEGO-MAPPO achieves the highest final reward."][0] == HOLDS
    results.parts["spread-3"]["pic"]["rows"] = seeds(-10.0)
    assert verdicts(results)["Three agents: LEGO-MAPPO achieves the highest final reward."][0] == FAILS


def test_one_seed_decides_nothing(results):
    for part in results.parts["spread-3"].values():
        part["rows"] = part["rows"][:1]
    found = verdicts(results)
    assert all(found[claim.text][0] == OPEN for claim in CLAIMS if claim.study == "spread-3")


def test_a_smaller_scale_decides_nothing(results):
    text = "LEGO-MAPPO's reward in Tag peaks near 1e6 interactions and then decreases."
    results.parts["tag"]["lego"]["scale"] = "tiny"
    verdict, evidence = verdicts(results)[text]
    assert verdict == OPEN
    assert evidence.startswith("scale tiny")


def test_without_results_no_figure_decides_anything():
    decided = [text for text, (verdict, _) in verdicts(Results({})).items() if verdict != OPEN]
    assert decided == ["MAPPO and PIC cannot be evaluated at another team size."]
    page, pictures = make_page(Results({}))
    assert page.count("not run yet</p>") == 11
    assert not pictures


class Page(HTMLParser):
    """What a page refers to, and whether its tags fit together."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(results):
    text, pictures = make_page(results)
    page = Page()
    page.feed(text)
    assert not page.open
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert "http" not in text
    assert set(pictures) == {"spread-3", "tag", "tag-trajectories", "agent-failure"}
    assert all(data.startswith(b"\x89PNG") for data in pictures.values())


def test_tables_stand_beside_the_papers(results):
    text, _ = make_page(results)
    assert "-21.0 ± 0.4<br><span class='paper'>-23.8 ± 7.4</span>" in text  # and not the rows without a limit
    assert "<td>LEGO-MAPPO</td><td>3</td><td>2,000,000</td><td>150.0</td><td>100.0</td><td>378</td>" in text
    assert "legoswarm study spread-3 &lt;here&gt;" in text
    assert "agents 2: -10.0, the paper -10.6" in text
    # Sample efficiency: LEGO passes -43.4 at 1e6 steps, MAPPO at 5e6.
    assert "<td>1,000,000</td><td>3 of 3</td>" in text
    assert "<td>5,000,000</td><td>3 of 3</td>" in text


def test_files_are_read_and_written(results, tmp_path):
    folder = tmp_path / "results" / "spread-3"
    folder.mkdir(parents=True)
    (folder / "lego.json").write_text(json.dumps(results.parts["spread-3"]["lego"]))
    out = write_report(tmp_path / "results", tmp_path / "page" / "report.html", tmp_path / "figures")
    assert "LEGO-MAPPO" in out.read_text()
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["spread-3.png"]
    (folder / "mappo.json").write_text("{}")
    with pytest.raises(FileError, match="not a result of a study"):
        write_report(tmp_path / "results", out)
