"""The report: tables, claims and pictures from hand-made results; one page that needs nothing else."""

import json
from pathlib import Path

import pytest

from legoswarm.files import FileError
from legoswarm.studies.catalogue import STUDIES
from legoswarm.studies.claims import CLAIMS, FAILS, GOALS, HOLDS, OPEN, judge
from legoswarm.studies.markdown import ALONE, BEGIN, END, MADE, MARK, write_markdown
from legoswarm.studies.paper import named
from legoswarm.studies.plots import CLOSE
from legoswarm.studies.report import make_page, write_report
from legoswarm.studies.results import Results
from tests.browser import opened
from tests.page import check_page

ROOT = Path(__file__).parent.parent
NOISE = (-0.4, 0.1, 0.3)  # of three seeds
PEAK = next(claim.text for claim in CLAIMS if "peaks near" in claim.text)


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
        "content": {"policies": [{"task": {"agents": 3}, "algorithm": {"epochs": 5}, "policy": {"width": 64}}]},
        "rows": list(rows),
        **fields,
    }


def seeds(mean, **fields):
    """Rows of three seeds around a mean."""
    return [
        {"agents": 3, "seed": at, "episodes": 10, "return_2c": mean + noise, "return_2c_se": 0.1,
         "return_1c": mean + 1, "return_1c_se": 0.1, **fields}
        for at, noise in enumerate(NOISE)
    ]  # fmt: skip


def curve(*means, figure="return_2c", steps=(0.5e6, 1e6, 3e6, 5e6), noises=NOISE):
    """A learning curve of three seeds, or of as many as there are noises."""
    values = [[mean + noise for noise in noises] for mean in means]
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
    trials = [{**drawn[0], "title": f"trial {at}", "failed": {"entity": 0, "step": 3}} for at in (1, 2)]
    chase = curve(50, 100, 70, 60, figure="pursuer_return", noises=2 * NOISE)
    rows = [{"failure": kind, "agents": 3, "episodes": 1000, "seed": 0, "captures_after": c, "captures_after_se": 0.05,
             "survivors_captures": c, "survivors_captures_se": 0.05, "capture_share_after": 0.5,
             "capture_share_after_se": 0.02}
            for kind, c in (("without", 3.0), ("kept", 2.0), ("removed", 2.05))]  # fmt: skip
    times = {"train_seconds": 100.0, "steps_per_second": 2e4, "steps": 2_000_000, "trained_on": "gpu: H200"}
    sizes = [row for n, mean in ((2, -10), (3, -21), (6, -110)) for row in seeds(mean, agents=n)]
    free = seeds(-1000.0, limit="none")
    return Results(
        {
            "spread-3": spread,
            "tag": {"lego": made("tag", "lego", curve=chase, trajectories=drawn)},
            "agent-failure": {"lego": made("agent-failure", "lego", rows=rows, trajectories=trials)},
            "run-time": {
                "lego-3": made("run-time", "lego-3", label="lego", **{**times, "train_seconds": 150.0}),
                "mappo-3": made("run-time", "mappo-3", label="mappo", **times),
            },
            "generalization": {"lego": made("generalization", "lego", rows=[*sizes, *free])},
        }
    )


def verdicts(results):
    return dict(zip([claim.text for claim in CLAIMS], judge(CLAIMS, results), strict=True))


def test_claims_are_decided_by_tests(results):
    found = verdicts(results)
    assert found["MAPPO-local improves over vanilla MAPPO."][0] == OPEN
    # Graphs alone are clearly above canonicalization alone here: the opposite of the claim.
    gnn = next(text for text in found if text.startswith("MAPPO-GNN performs poorly"))
    assert found[gnn][0] == FAILS
    # PIC and SEGNN are missing, and nothing speaks against it.
    verdict, evidence = found["Three agents: LEGO-MAPPO achieves the highest final reward."]
    assert verdict == OPEN
    assert "not run yet: pic, segnn" in evidence
    assert found[PEAK][0] == HOLDS
    verdict, evidence = found["The remaining pursuer goes on after the failure."]
    assert verdict == OPEN  # one policy decides nothing
    assert (
        evidence
        == "one policy, survivors_captures, kept: 2.00 +- 0.10 over episodes; not run yet: agent-failure/lego-seeds"
    )
    assert found["MAPPO and PIC cannot be evaluated at another team size."] == (OPEN, "not run yet: mappo")


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
    text = PEAK
    results.parts["tag"]["lego"]["scale"] = "tiny"
    verdict, evidence = verdicts(results)[text]
    assert verdict == OPEN
    assert evidence.startswith("scale tiny")


def test_without_results_no_figure_decides_anything():
    decided = [text for text, (verdict, _) in verdicts(Results({})).items() if verdict != OPEN]
    assert decided == []
    page, pictures = make_page(Results({}))
    assert page.count("not run yet</p>") == len(STUDIES)
    assert not pictures


def test_the_page_is_whole_and_needs_nothing_else(results):
    text, pictures = make_page(results)
    page = check_page(text)
    trajectories = {"tag-trajectories", "agent-failure-trajectories"}
    assert set(pictures) == {"spread-3", "tag", "agent-failure", *trajectories}
    assert len(page.images) == len(pictures) - len(trajectories)  # stills of what moves stay out of the page
    assert all(data.startswith(b"\x89PNG") for data in pictures.values())


def test_the_page_opens_with_an_animation_and_a_scoreboard(results):
    text, _ = make_page(results)
    start = text[: text.index('id="claims"')]
    assert start.count("data-auto") == 1
    verdicts = [verdict for verdict, _ in judge(CLAIMS, results)]
    for kind, verdict, words in (
        ("holds", HOLDS, "hold"),
        ("fails", FAILS, "do not hold"),
        ("open", OPEN, "are not decided"),
    ):
        assert f'<div class="{kind}"><b>{verdicts.count(verdict)}</b>{words}</div>' in start
    assert "Policies were trained on H200 and evaluated on cpu." in start
    assert "It implements LEGO" in start
    legend = start.split('class="roles">')[1].split("</p>")[0]
    assert [role in legend for role in ("pursuer", "evader", "obstacle", "agent")] == [True, True, True, False]
    assert text.count('<details class="claim">') == len(CLAIMS) + len(GOALS)
    assert "<details open" not in text


def test_trajectories_move_and_failures_are_crossed(results):
    text, _ = make_page(results)
    page = check_page(text)
    assert page.count["svg"] == 3
    films = [json.loads(data) for data in page.data]
    assert [len(group) for group in films] == [1, 2]
    # Two pursuers and an evader move, the obstacle stands; y is downwards.
    assert [len(path) for path in films[0][0]] == [5, 5, 5]
    assert films[0][0][1][3] == [0.0, -0.3]
    assert text.count('<path class="cross"') == 2
    assert 'transform="translate(0.3,0.0)" data-step="3"' in text


def test_what_is_not_there_is_not_in_the_film(results):
    positions = results.parts["tag"]["lego"]["trajectories"][0]["positions"]
    positions[4][2] = [None, None]
    page = check_page(make_page(results)[0])
    assert json.loads(page.data[0])[0][2] == [[0.5, -0.5]] * 4 + [None]


@pytest.mark.parametrize("width", [360, 1400])
def test_a_browser_plays_the_page(results, tmp_path, width):
    seen = opened(make_page(results)[0], tmp_path, width)
    assert seen["errors"] == []
    assert seen["players"] == "2"
    assert seen["moved"] == 1  # the first one plays by itself
    check_looks(seen, width)
    assert seen["first"] == ["play", "step 4 of 4"]  # it has played to the end and stopped
    assert all(place.startswith("translate(") for place in seen["places"])
    assert seen["crosses"] == ["", ""]


@pytest.mark.parametrize("width", [360, 1400])
def test_the_committed_results_fit_on_phones_and_desks(width, tmp_path):
    seen = opened(make_page(Results.read(ROOT / "results" / "studies"))[0], tmp_path, width)
    assert (seen["errors"], seen["moved"]) == ([], 1)
    check_looks(seen, width)


def check_looks(seen, width):
    """Nothing is wider than the window, letters and numbers can be read, and the last link leads where it should."""
    assert seen["wide"] == width
    assert all(min(box) > 50 for box in seen["images"] + seen["drawings"])
    letter = 9 * CLOSE["dpi"] / 72  # pixels of 9 points
    assert all(letter * wide / pixels > 8.5 for wide, _, pixels in seen["images"])
    assert max(seen["tables"]) < 0.5  # of a table's box is its first column: a number stands beside it
    name, y = seen["reached"]
    assert name == f"#{list(STUDIES)[-1]}"
    assert -1 <= y < 900


def test_missing_parts_are_named(results):
    text, _ = make_page(results)
    assert "<p class='open'>not run yet: pic, segnn</p>" in text
    assert "not run yet: segnn, mappo-2, mappo-3" in text


def test_a_planar_segnn_stands_in_for_claims_alone(results):
    rows = seeds(-500.0, agents=6)
    results.parts["generalization"]["segnn-planar"] = made("generalization", "segnn-planar", rows=rows)
    claim = next(claim for claim in CLAIMS if claim.text.startswith("The four-agent SEGNN degrades"))
    results.parts["generalization"]["mappo-6"] = made(
        "generalization", "mappo-6", label="mappo", rows=seeds(-300.0, agents=6)
    )
    [(verdict, evidence)] = judge([claim], results)
    assert verdict == OPEN
    assert evidence.startswith("segnn in its planar form; mappo at agents 6 -300.0")
    assert not len(results.values("generalization", "segnn", "return_2c"))
    assert "<td>SEGNN (planar)</td>" in make_page(results)[0]


def test_mappo_degrades_if_it_does_on_both_sides(results):
    claim = next(claim for claim in CLAIMS if claim.text.startswith("MAPPO degrades"))
    for anywhere, verdict in ((-41.0, FAILS), (-60.0, HOLDS)):
        sides = {"left": -40.0, "right": -70.0, "uniform": anywhere}
        rows = [row for side, mean in sides.items() for row in seeds(mean, start=side)]
        results.parts["ood"] = {"mappo": made("ood", "mappo", rows=rows)}
        assert judge([claim], results)[0][0] == verdict


def test_a_seed_without_a_number_is_left_out_of_curves(results):
    points = results.parts["tag"]["lego"]["curve"]["values"]
    points[1][0] = None
    steps, values = results.curve("tag", "lego")
    assert values.shape == (len(steps), 5)
    assert verdicts(results)[PEAK][0] == HOLDS


def test_markdown_tables_stand_at_their_places(results, tmp_path):
    text = ALONE["generalization"](results)
    assert text.startswith("Return, closer to zero is better. The best of each column is in bold.")
    assert "| LEGO-MAPPO (pair critic) | 3 | **-10.0** | **-21.0** | - | - | **-110.0** |" in text
    assert "| LEGO-MAPPO (as published) | - | - (-10.6) | - (-23.8) | - (-44.0) | - (-79.8) | - (-114.6) |" in text
    assert "| SEGNN (own critic), curriculum | - | - (-186.1) | - | - |" in MADE["curriculum"](results)
    assert "| LEGO-MAPPO (pair critic) | 3 | **-20.0** (-20.9 to -19.1) | - | - |" in MADE["trained"](results)
    assert "| LEGO-MAPPO | 100.0 (378) | - (998) |" in MADE["run-time"](results)
    top = "LEGO-MAPPO at its peak 100.0 [99.1, 100.9] versus at the end 60.0 [59.1, 60.9]"
    assert f"{PEAK} | in words | {top} | p < 0.001, of 3 | holds |" in MADE["claims"](results)
    assert "| tag | lego peaks at 1e+06 steps |  |" in MADE["tests"](results)
    page, where = tmp_path / "page.md", MARK.format("begin claims")
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nbetween\n{where}{END}\nafter\n")
    write_markdown(results, page)
    claims = MADE["claims"](results)
    assert page.read_text() == f"before\n{BEGIN}\n{text}\n{END}\nbetween\n{where}\n{claims}\n{END}\nafter\n"
    results.parts["generalization"]["lego"]["scale"] = "tiny"
    assert "This is scale tiny: a look, not a result." in MADE["generalization"](results)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("my own words\n", "no place for the tables"),
        (f"{MARK.format('begin no_thing-1')}{END}\n", "a place for 'no_thing-1'"),
    ],
)
def test_a_file_without_a_known_place_is_left_alone(results, tmp_path, words, refusal):
    page = tmp_path / "page.md"
    page.write_text(words)
    with pytest.raises(FileError, match=refusal):
        write_markdown(results, page)
    assert page.read_text() == words


@pytest.mark.parametrize("name", ["README.md", "docs/results.md", "docs/swarm.md"])
def test_committed_tables_are_those_of_the_committed_results(name, tmp_path):
    page = tmp_path / "page.md"
    page.write_text((ROOT / name).read_text())
    write_markdown(Results.read(ROOT / "results" / "studies"), page)
    command = "legoswarm report --markdown README.md docs/results.md docs/swarm.md"
    assert page.read_text() == (ROOT / name).read_text(), f"run: {command}"


def test_tables_stand_beside_the_papers(results):
    text, _ = make_page(results)
    assert "-21.0 ± 0.4<br><span class='paper'>&mdash;</span>" in text  # and not the rows without a limit
    assert "&mdash;<br><span class='paper'>-23.8 ± 7.4</span>" in text  # the paper's LEGO is the one as published
    assert "<td>LEGO-MAPPO</td><td>3</td><td>2,000,000</td><td>150.0</td><td>100.0</td><td>378</td>" in text
    assert "legoswarm study spread-3 &lt;here&gt;" in text
    assert "agents 2: -10.0, the paper -10.6" in text
    # Sample efficiency: LEGO passes -43.4 at 1e6 steps, MAPPO at 5e6.
    assert "<td>1,000,000</td><td>3 of 3</td>" in text
    assert "<td>5,000,000</td><td>3 of 3</td>" in text


def test_algorithms_stand_side_by_side(results):
    parts = {
        "lego-masac": made(
            "algorithms", "lego-masac", label="lego with masac", rows=seeds(-15.0), curve=curve(-50, -45, -16, -15)
        ),
    }
    results.parts["algorithms"] = parts
    assert "| LEGO-MASAC (critics of joint actions) | 3 | **-15.0** (-15.9 to -14.1) |" in MADE["algorithms"](results)
    text, pictures = make_page(results)
    assert "algorithms" in pictures
    assert "<td>LEGO-MASAC</td><td>-25.7 ± 0.4</td><td>3,000,000</td><td>3 of 3</td>" in text
    section = text[text.index('id="algorithms"') :]  # shows what MAPPO makes of the same policy, too
    assert "<td>LEGO-MAPPO</td><td>-25.4 ± 0.4</td><td>1,000,000</td><td>3 of 3</td>" in section
    assert "<td>MAPPO (own critic)</td><td>-40.0 ± 0.4</td>" in section
    assert "<p class='open'>not run yet: mappo-masac, lego-joint-masac-4, lego-joint-masac-mixed</p>" in text


def test_swarms_and_navigation_show_their_tables(results):
    rows = [{**row, "agents": 8, "covered": 0.95} for row in seeds(-15.0)]
    results.parts["swarm"] = {"lego": made("swarm", "lego", label="lego at constant density", rows=rows)}
    rows = [{**row, "agents": 8, "success": 0.99} for row in seeds(-15.0)]
    results.parts["navigation"] = {"lego-free": made("navigation", "lego-free", label="lego, free", rows=rows)}
    text = make_page(results)[0]
    assert "sees within 1.2</td><td>0.950 ± 0.000</td>" in text
    assert "<code>zoo:spread</code>, trained with four" in text
    assert "<td>LEGO-MASAC, free</td><td>0.9900 ± 0.0000<br><span class='paper'>0.988 ± 0.009</span></td>" in text


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("lego", "LEGO-MAPPO"),
        ("lego with masac", "LEGO-MASAC"),
        ("mappo with masac", "MAPPO-MASAC"),
        ("segnn-curr", "SEGNN-curr"),
        ("lego after 1e6 steps against mappo", "LEGO-MAPPO after 1e6 steps against MAPPO"),
    ],
)
def test_labels_have_the_papers_names(label, name):
    assert named(label) == name


def test_files_are_read_and_written(results, tmp_path):
    folder = tmp_path / "results" / "spread-3"
    folder.mkdir(parents=True)
    (folder / "lego.json").write_text(json.dumps(results.parts["spread-3"]["lego"]))
    out, tables = tmp_path / "page" / "report.html", tmp_path / "page" / "tables.md"
    write_report(tmp_path / "results", out, tmp_path / "figures", [tables])
    assert "LEGO-MAPPO" in out.read_text()
    found = Results.read(tmp_path / "results")
    assert all(make(found) in tables.read_text() for make in MADE.values())
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["spread-3.png"]
    (folder / "mappo.json").write_text("{}")
    with pytest.raises(FileError, match="not a result of a study"):
        write_report(tmp_path / "results", out)
