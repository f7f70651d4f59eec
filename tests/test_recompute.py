"""The second reviewer: it agrees with what is committed, and finds any digit, verb or verdict that is wrong."""

import json
import sys
from pathlib import Path

import pytest

from legoswarm.studies import rules
from legoswarm.studies.failure import SEVERAL
from legoswarm.studies.results import Results as PackageResults

ROOT = Path(__file__).parent.parent
README, PAGE = "README.md", "docs/results.md"


@pytest.fixture(scope="module")
def review():
    """Runs the script on a folder; what it imports is gone afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(ROOT / "tools"))
    import recompute

    yield recompute.main
    sys.path.remove(str(ROOT / "tools"))
    for name in set(sys.modules) - before:
        if name.startswith("recompute"):
            del sys.modules[name]


def test_it_agrees_with_what_is_committed(review, capsys):
    assert review(ROOT) == 0
    said = capsys.readouterr().out
    assert said.endswith(" 0 differ\n")
    assert int(said.split()[0]) > 800


def test_it_does_not_import_the_package():
    for path in (ROOT / "tools").glob("recompute*.py"):
        assert "import legoswarm" not in path.read_text()
        assert "from legoswarm" not in path.read_text()


def test_it_can_read_what_the_next_run_will_measure(review, tmp_path):
    """Comparisons that no committed result holds yet: the package's own words, recomputed."""
    from recompute_claims import Claims
    from recompute_sources import Results

    def put(study, name, label, **content):
        path = tmp_path / "studies" / study / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        needed = {"scale": "full", "command": "", "runs": [], "hardware": {}, "content": {}}
        path.write_text(json.dumps({"label": label, **needed, **content}))

    put("tag", "lego-1e6", "lego after 1e6 steps", rows=[{"surround": 0.6 + seed / 50} for seed in range(3)])
    put("tag", "mappo", "mappo", rows=[{"surround": 0.5 + seed / 40} for seed in range(3)])
    kinds = {"without": 0.1, "kept": 0.5, "removed": 0.2}
    rows = [
        {"failure": k, "survivors_captures": v + s / 50, "heading_after": v} for k, v in kinds.items() for s in range(3)
    ]
    put("agent-failure", "lego-seeds", SEVERAL, rows=rows)
    for name, rate in (("lego", 10.0), ("mappo-equal", 30.0)):
        put("run-time", f"{name}-3", name, steps=100, steps_per_second=rate)
    second, first = Claims(Results(tmp_path), None), PackageResults.read(tmp_path / "studies")
    for study, rule in (
        ("tag", rules.surround("lego after 1e6 steps")),
        ("tag", rules.above("tag", "lego after 1e6 steps", ("mappo",), "surround")),
        ("agent-failure", rules.after_failure("kept", None)),
        ("agent-failure", rules.after_failure("kept", "removed")),
        ("run-time", rules.ratio(3, "lego", "mappo-equal", 1.0, 2.0)),
    ):
        [finding] = rule(first)
        text, chance, agrees = second.compare(study, finding.evidence)
        assert (text, agrees) == (finding.evidence, finding.agrees)
        assert chance == (None if finding.chance is None else pytest.approx(finding.chance))
        assert second.theirs(study, text) == (finding.printed or "in words")


@pytest.mark.parametrize(
    ("page", "right", "wrong"),
    [
        (README, "| LEGO-MAPPO (pair critic) | 10 | -5.5 |", "| LEGO-MAPPO (pair critic) | 10 | -5.4 |"),
        (README, "(-859.2)", "(-859.3)"),
        (README, "goes from -11.5 to -6.7", "goes from -11.5 to -6.8"),
        (README, "ahead of them at 3, 4, 5 and 6", "ahead of them at 3, 3, 5 and 6"),
        (README, " do not and 20 are", " do not and 21 are"),
        (PAGE, "(-70.7 to -65.6)", "(-70.7 to -65.7)"),
        (PAGE, "seed 4 has -88.3", "seed 5 has -88.3"),
        (PAGE, "is ahead of MAPPO-local", "is behind MAPPO-local"),
        (PAGE, "MAPPO loses 3 % on", "MAPPO loses 4 % on"),
        (PAGE, "p = 0.877, of 5 | not decided |", "p = 0.877, of 5 | holds |"),
        (PAGE, "| 0.877 |", "| 0.876 |"),
        (PAGE, "ratio 173.52", "ratio 173.53"),
        (PAGE, "| -24.2 |", "| -24.3 |"),
        (PAGE, "PIC is defined by its critic", "PIC is the best: it is defined by its critic"),
    ],
)
def test_it_finds_what_is_wrong(page, right, wrong, review, tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").symlink_to(ROOT / "results")
    for name in (README, PAGE):
        (tmp_path / name).write_text((ROOT / name).read_text())
    text = (ROOT / page).read_text()
    assert right in text
    (tmp_path / page).write_text(text.replace(right, wrong, 1))
    assert review(tmp_path) == 1
    assert not capsys.readouterr().out.endswith(" 0 differ\n")
