"""The report: one self-contained HTML page, drawn from the studies' JSON files alone."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from legoswarm.evaluate import statistics
from legoswarm.files import FileError, write_bytes
from legoswarm.show import player
from legoswarm.studies import paper, plots
from legoswarm.studies.catalogue import STUDIES
from legoswarm.studies.claims import CLAIMS, FAILS, GOALS, HOLDS, OPEN, Claim, judge
from legoswarm.studies.markdown import write_markdown
from legoswarm.studies.paper import named
from legoswarm.studies.results import Results
from legoswarm.studies.run import study_setup
from legoswarm.studies.sentences import listed
from legoswarm.studies.tables import ABOUT, DIGITS, FIGURE, TABLES, titled

STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-top: 1px solid #ddd; padding-top: 1rem; }
table { border-collapse: separate; border-spacing: 0; font-size: 0.87rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid #e4e4e4; text-align: right; vertical-align: top; }
td { white-space: nowrap; } th { vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 7.5rem; max-width: min(40vw, 24rem);
  overflow-wrap: break-word; position: sticky; left: 0; background: #fff; }
.table { overflow-x: auto; margin: 0.8rem 0; }
figure { margin: 1rem 0; } figcaption { font-size: 0.87rem; color: #555; }
img { width: 36rem; max-width: 100%; height: auto; display: block; }
code { font-size: 0.85em; background: #f5f5f5; padding: 0.1em 0.3em; overflow-wrap: anywhere; } .paper { color: #666; }
nav a { margin-right: 0.8rem; display: inline-block; }
.holds { color: #00714f; } .fails { color: #b3400a; } .open { color: #666; }
.board { display: flex; gap: 2px; margin: 1rem 0; text-align: center; }
.board div { flex: 1 1 0; padding: 0.5rem 0.2rem; background: #f4f4f4; border-top: 5px solid; line-height: 1.25; }
.board b { display: block; font-size: 2rem; }
summary { cursor: pointer; }
.claim { border-bottom: 1px solid #e4e4e4; padding: 0.35rem 0; }
.claim summary { display: flex; flex-wrap: wrap; gap: 0 1rem; list-style-position: inside; }
.claim strong { flex: 0 0 8rem; white-space: nowrap; } .claim span { flex: 1 1 16rem; }
.claim ul { font-size: 0.87rem; color: #444; margin: 0.4rem 0 0.6rem; overflow-wrap: anywhere; }
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>legoswarm: studies</title><style>{style}</style></head><body>
<h1>The paper's tables and figures, repeated</h1>
<p>legoswarm trains swarms of robots in simulation. It implements LEGO, the method of "Local-Canonicalization
Equivariant Graph Neural Networks for Sample-Efficient and Generalizable Swarm Robot Control" by Wang, Zhong, Chang and
Allen-Blanchette. One policy of LEGO steers a swarm of any size: each agent describes what it sees in a frame of its
own, and its action is turned back to the world, so that what is learned in one direction holds in all. This page
repeats the experiments of that paper and sets its numbers beside ours.</p>
{lead}
<p>In the task Spread, agents cover landmarks without touching each other. In Tag, pursuers are paid for touching
evaders, which are faster and can hide behind obstacles. LEGO-MAPPO is LEGO trained by the algorithm MAPPO, and
LEGO-MASAC by MASAC. The paper compares it with MAPPO, whose networks are plain; MAPPO-local, which adds LEGO's frame
alone; MAPPO-GNN, which adds LEGO's graph alone; PIC, which estimates returns with a graph; and SEGNN, whose layers
themselves turn with the world.</p>
{board}
<p>{facts}</p>
<nav>{contents}</nav>
<h2 id="claims">The claims of the paper</h2>
<p>Open a claim to see its evidence. A claim holds if all its comparisons say so, and does not hold if one says the
opposite. Two means over seeds are compared by Welch's test, learning speeds (the steps to where the worse of two
methods ends) by Mann and Whitney's; a comparison is decided at 5 % after Holm's correction for all tests of its study.
Where a claim has a number of ours (here: ...), means are compared with it.</p>
{claims}
<h3>Against the paper's own numbers</h3>
{goals}
<p>In the tables below, a pair that collides costs 2 (return_2c) unless said otherwise. A critic is a network that
estimates the return still to come while a policy is trained; afterwards it is not needed. The pair critic is ours, and
passes messages between all pairs of entities. LEGO is trained with the pair critic, except where the study 'beyond'
names the paper's.</p>
{sections}
<script>{script}</script></body></html>
"""
LEADS = ("ood", "tag", "agent-failure")  # the first of them that has episodes moves at the top
VERDICT_CLASSES = {HOLDS: "holds", FAILS: "fails", OPEN: "open"}
PLACES = ("agents", "pursuers", "evaders", "obstacles", "start", "limit", "engine", "failure", "arena")

NOTHING = "&mdash;"  # in a cell
CURVES = "Learning curves: means over seeds; bands are 95 % intervals of the mean."
FIGURES: dict[str, tuple[Callable[[Results, str], bytes | None], str]] = {  # and their captions
    **dict.fromkeys(("spread-3", "spread-6", "tag"), (plots.curves, CURVES)),
    "algorithms": (plots.curves, f"{CURVES} Dashed lines are trained by MASAC, the others by MAPPO."),
    "equivariance": (
        plots.scenes,
        "One scene and what symmetries make of it; arrows are actions, pursuers and evaders are numbered.",
    ),
    "head-to-head": (
        plots.meetings,
        "Pursuers of the first method against evaders of the second. Means over seeds with their 95 % intervals; dots "
        "are seeds.",
    ),
    "agent-failure": (
        plots.failures,
        "Without failure, with the failed pursuer kept where it stopped, and with it removed. Intervals are over "
        "policies, or over episodes where there is one policy.",
    ),
    "beyond": (
        plots.sizes,
        "Return against team size, divided by the square of the size. Every line but the first changes one thing in "
        "LEGO-MAPPO's training or, as published, three; a leash pulls back who strays far from all it sees. "
        "Bands are 95 % intervals of the mean.",
    ),
}
RETURNS = {
    f"return_{cost}c": f"Return, where a colliding pair costs {cost}; closer to zero is better." for cost in (2, 1)
}

Pictures = dict[str, bytes]


def write_report(folder: Path, out: Path, pictures: Path | None = None, tables: Sequence[Path] = ()) -> Path:
    """Write the page, and if they are named, a folder of figures as PNG files and tables into Markdown files."""
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder of results; make one with: legoswarm study NAME")
    results = Results.read(folder)
    for path in tables:
        write_markdown(results, path)
    page, drawn = make_page(results)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(out, page.encode())
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        for name, data in drawn.items():
            write_bytes(pictures / f"{name}.png", data)
    return out


def make_page(results: Results) -> tuple[str, Pictures]:
    """Return the page and its figures by name."""
    pictures: Pictures = {}
    lead = next((name for name in LEADS if plots.trajectories(results, name)), "")
    sections = [_section(results, name, pictures, lead) for name in STUDIES]
    page = PAGE.format(
        style=STYLE + player.STYLE,
        script=player.SCRIPT,
        lead=_lead(results, lead) if lead else "",
        board=_board(results),
        facts=_text(_facts(results)),
        contents=" ".join(f'<a href="#{name}">{name}</a>' for name in ("claims", *STUDIES)),
        claims=_verdicts(CLAIMS, results),
        goals=_verdicts(GOALS, results),
        sections="\n".join(sections),
    )
    return page, pictures


def _lead(results: Results, study: str) -> str:
    """Return a study's episodes as an animation that plays by itself."""
    found = plots.trajectories(results, study, auto=True)
    caption = f'One episode each, from the study <a href="#{study}">{study}</a>: {_text(STUDIES[study].about)}.'
    return f'<div id="film">{found[1]}<p>{caption}</p></div>' if found else ""


def _board(results: Results) -> str:
    """Return how many claims hold, do not, and are not decided."""
    verdicts = [verdict for verdict, _ in judge(CLAIMS, results)]
    words = {HOLDS: "hold", FAILS: "do not hold", OPEN: "are not decided"}
    cells = [f'<div class="{VERDICT_CLASSES[v]}"><b>{verdicts.count(v)}</b>{words[v]}</div>' for v in words]
    return f'<p>Of {len(verdicts)} claims in the paper</p><div class="board">{"".join(cells)}</div>'


def _facts(results: Results) -> str:
    """Return what was run, for how long, and on which machines it trained and was evaluated."""
    parts = [part for name in STUDIES for part in results.study(name)]
    if not parts:
        return "No study has been run yet."
    runs = {part["runs"][0]: part["train_seconds"] for part in parts if "train_seconds" in part}
    trained = _machines(part["trained_on"] for part in parts if "trained_on" in part)
    evaluated = _machines(part["hardware"].get("cpu") or part["hardware"]["device"] for part in parts)
    hours = sum(runs.values()) / 3600
    smaller = sorted({part["scale"] for part in parts} - {"full"})
    looks = f" Some were shortened (scale {listed(smaller)}): they are a look, not a result." if smaller else ""
    ran = (
        f"This page shows {len(parts)} experiments, with {len(runs)} training runs of {hours:.2f} hours in all.{looks}"
    )
    return f"{ran} Policies were trained on {trained} and evaluated on {evaluated}."


def _machines(names: Iterable[str]) -> str:
    """Return the names of machines as one says them: neither JAX's kind of a device nor marks of trade."""
    return listed(sorted({re.sub(r"^\w+: |\(R\)", "", name) for name in names}) or ["unknown hardware"])


def _verdicts(claims: Sequence[Claim], results: Results) -> str:
    """Return claims with their verdicts; the evidence unfolds."""
    rows = []
    for claim, (verdict, evidence) in zip(claims, judge(claims, results), strict=True):
        mark = f'<strong class="{VERDICT_CLASSES[verdict]}">{verdict}</strong>'
        items = "".join(f"<li>{_text(named(piece))}</li>" for piece in evidence.split("; "))
        link = f'<li>study <a href="#{claim.study}">{claim.study}</a></li>'
        summary = f"<summary>{mark}<span>{_text(claim.text)}</span></summary>"
        rows.append(f'<details class="claim">{summary}<ul>{items}{link}</ul></details>')
    return "\n".join(rows)


def _section(results: Results, name: str, pictures: Pictures, lead: str) -> str:
    """Return one study: its figures, its tables beside the paper's, all statistics, what is missing, the command."""
    pieces = [f'<h2 id="{name}">{name}</h2>', f"<p>{_text(STUDIES[name].about)}</p>"]
    parts = results.study(name)
    if not parts:
        return "\n".join([*pieces, "<p class='open'>not run yet</p>"])
    draw, caption = FIGURES.get(name, (None, ""))
    if draw is not None and (drawn := draw(results, name)):
        pictures[name] = drawn
        pieces.append(_image(drawn, name, caption))
    if episodes := plots.trajectories(results, name):
        pictures[f"{name}-trajectories"], moving = episodes
        above = '<p>Its episodes are shown <a href="#film">at the top of this page</a>.</p>'
        pieces.append(above if name == lead else moving)
    if name in SPECIAL:
        pieces.append(SPECIAL[name](results, name))
    if rows := _statistics(results, name):
        pieces.append(f"<details><summary>all statistics</summary>{_table(*rows)}</details>")
    if missing := _missing(results, name):
        pieces.append(f"<p class='open'>not run yet: {_text(', '.join(missing))}</p>")
    commands = sorted({part["command"] for part in parts if part["command"]})
    made = "".join(f"<p><code>{_text(command)}</code></p>" for command in commands)
    pieces.append(f"<details><summary>the commands that made it</summary>{made}</details>" if made else "")
    return "\n".join(pieces)


def _missing(results: Results, study: str) -> list[str]:
    """Return the parts of a study, at the scale at which it was run, that are not there."""
    done = results.parts[study]
    scale = next(iter(done.values()))["scale"]
    return [part.name for part in study_setup(scale).parts(study) if part.name not in done]


def _beside(results: Results, study: str) -> str:
    """Return a study's tables, above what others have; returns are counted in both ways."""
    pieces = []
    tables = [table for name, table in TABLES.items() if name.startswith(study)]
    for table, figure in [(t, f) for t in tables for f in (RETURNS if t.figure == FIGURE else (t.figure,))]:
        others, digits = any(row.printed for row in table.rows), DIGITS.get(table.figure, 3)
        beside = f"; below it, in grey, {table.beside}" if others else ""
        note = f"{RETURNS.get(figure) or ABOUT[figure]} Mean ± standard deviation over seeds{beside}."
        rows = []
        for row in table.rows:
            found = table._replace(figure=figure).values(results, row)
            cells = [_spread(values, digits) for values in found]
            if others:
                printed = map(row.printed.get, table.columns)
                cells = [
                    f"{ours}<br><span class='paper'>{_cell(p)}</span>" for ours, p in zip(cells, printed, strict=True)
                ]
            rows.append([re.sub("`(.+?)`", r"<code>\1</code>", _text(row.name)), *cells])
        pieces += [f"<p>{_text(note)}</p>", _table([table.title, *table.heads], rows)]
    return "".join(pieces)


def _times(results: Results, study: str) -> str:
    rows = []
    for part in results.study(study):
        agents = part["content"]["policies"][0]["task"]["agents"]
        printed = paper.RUN_TIME.get(part["label"], {}).get(agents)
        steady = part["steps"] / part["steps_per_second"]
        theirs = f"{printed:,.0f}" if printed else NOTHING
        rows.append([_text(named(part["label"])), str(agents), f"{part['steps']:,}", f"{part['train_seconds']:.1f}",
                     f"{steady:.1f}", theirs, _text(part["trained_on"])])  # fmt: skip
    head = ["", "agents", "steps", "seconds, compilation included", "without", "the paper (A6000), 2e6 steps", "device"]
    return _table(head, rows)


def _efficiency(results: Results, study: str) -> str:
    """Return a table of the area under the learning curve and the steps to a threshold."""
    threshold, rows = paper.THRESHOLDS[study], []
    for label, curve in plots.learning(results, study).items():
        reached = statistics.steps_to(*curve, threshold)
        median = f"{np.median(reached):,.0f}" if np.isfinite(np.median(reached)) else "never"
        share = f"{np.isfinite(reached).sum()} of {len(reached)}"
        rows.append([_text(named(label)), _spread(statistics.area_under_curve(*curve)), median, share])
    return _table(["", "mean height of the curve", f"steps to {threshold} (median)", "seeds that get there"], rows)


def _errors(results: Results, study: str) -> str:
    table = results.study(study)[0]["errors"]
    rows = [[_text(name), f"{error['quantile']:.1e}", f"{error['largest']:.1e}"] for name, error in table.items()]
    return _table(["largest error of an action in a scene", "90 % of scenes below", "largest of all scenes"], rows)


def _failures(results: Results, study: str) -> str:
    """Return what is left of the captures, with the standard error over episodes, as there is one policy."""
    names = ("captures_after", "survivors_captures", "capture_share_after")
    rows = [
        [_text(titled(row["failure"])), *(f"{row[name]:.2f} ± {row[f'{name}_se']:.2f}" for name in names)]
        for part in results.study(study)
        for row in part["rows"]
    ]
    note = "After the failure, mean ± standard error over episodes:"
    head = ["failure", "touching pair-steps", "of the other pursuer", "share of episodes with a touch"]
    return f"<p>{_text(note)}</p>" + _table(head, rows)


SPECIAL: dict[str, Callable[[Results, str], str]] = {
    "equivariance": _errors,
    **dict.fromkeys(paper.THRESHOLDS, _efficiency),
    "run-time": _times,
    "algorithms": lambda *which: _efficiency(*which) + _beside(*which),
    **dict.fromkeys(("generalization", "curriculum", "ood", "swarm", "navigation"), _beside),
    "agent-failure": _failures,
}


def _statistics(results: Results, study: str) -> tuple[list[str], list[list[str]]] | None:
    """Return every figure of every part at every place."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for part in results.study(study):
        for row in part.get("rows", ()):
            groups.setdefault((part["label"], *(row.get(place) for place in PLACES)), []).append(row)
    if not groups:
        return None
    rows = list(groups.values())
    primary, *others = [name for name in rows[0][0] if f"{name}_se" in rows[0][0]]  # as the evaluator orders them
    used = [at for at in range(len(PLACES)) if any(key[at + 1] is not None for key in groups)]
    head = ["", *(PLACES[at] for at in used), "seeds", "episodes", f"{primary}: mean ± sd", "95 % interval",
            "interquartile mean", "its 95 % interval", "worst seed", *others]  # fmt: skip
    table = []
    for key, members in groups.items():
        values = np.array([row[primary] for row in members if row[primary] is not None], float)
        if not len(values):
            continue
        means = [np.mean([row[name] for row in members if row.get(name) is not None] or [np.nan]) for name in others]
        table.append([
            _text(titled(key[0])), *("" if key[at + 1] is None else _text(key[at + 1]) for at in used),
            str(len(values)), str(members[0]["episodes"]), _spread(values, 2), _range(statistics.mean_interval(values)),
            f"{statistics.interquartile_mean(values):.2f}", _range(statistics.iqm_interval(values)),
            f"{values.min():.2f}", *(f"{mean:.2f}" for mean in means),
        ])  # fmt: skip
    return head, table


def _spread(values: np.ndarray, digits: int = 1) -> str:
    """Return mean and standard deviation; one value has none."""
    if not len(values):
        return NOTHING
    mean = f"{values.mean():.{digits}f}"
    return f"{mean} ± {statistics.deviation(values):.{digits}f}" if len(values) > 1 else mean


def _cell(printed: paper.Cell | None) -> str:
    return NOTHING if printed is None else f"{printed[0]} ± {printed[1]}"


def _range(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}" if np.isfinite(interval).all() else NOTHING


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table; cells are HTML already."""
    top = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="table"><table><tr>{top}</tr>\n{lines}</table></div>'


def _image(data: bytes, title: str, caption: str) -> str:
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return f'<figure><img alt="{_text(title)}" src="{source}"><figcaption>{_text(caption)}</figcaption></figure>'


def _text(value: object) -> str:
    return html.escape(str(value))
