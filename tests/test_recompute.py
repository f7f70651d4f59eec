"""The second reviewer: it agrees with what is committed, and finds any digit, verb or verdict that is wrong."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README, PAGE = "README.md", "docs/results.md"


@pytest.fixture(scope="module")
def review():
    """Runs the script on a folder; what it imports is gone afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(ROOT / "tools"))
    import recompute

    sys.path.remove(str(ROOT / "tools"))
    yield recompute.main
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
