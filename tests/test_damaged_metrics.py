"""metrics.jsonl: a half-written last line is dropped, any other damage is refused, and nothing is deleted."""

import os

import pytest

from legoswarm.files import FileError
from legoswarm.learn.folder import RunFolder

ROW = '{"iteration": 1, "steps": 1, "seconds": 1}'
ROWS = "".join(f'{{"iteration": {at}, "steps": {at}, "seconds": 0.5, "loss": [0.1]}}\n' for at in range(5))


def test_a_half_written_last_line_is_dropped(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(ROWS + '{"iter')
    assert len(RunFolder(tmp_path).read_metrics()) == 5
    RunFolder(tmp_path).trim_metrics(2)
    assert len(RunFolder(tmp_path).read_metrics()) == 3


@pytest.mark.parametrize(
    "line",
    [
        *("{", "5", "{}", "\x00", "[" * 100_000, ROW.replace("steps", "stops")),
        *(ROW.replace(": 1}", f": {other}}}") for other in ("null", '"x"', "NaN", "1" + "0" * 400)),
    ],
    ids=["half", "number", "empty", "byte", "deep", "missing", "null", "word", "nan", "huge"],
)
def test_other_damage_is_refused_and_nothing_is_deleted(tmp_path, line):
    text = ROWS + line + "\n" + ROWS
    (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(FileError, match=r"metrics\.jsonl is damaged in line 6"):
        RunFolder(tmp_path).trim_metrics(4)
    assert (tmp_path / "metrics.jsonl").read_text() == text


def test_what_is_no_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(FileError, match="is not a plain file"):
        RunFolder(tmp_path).read_metrics()


@pytest.mark.parametrize("damage", ['"eval": 5', '"loss": {}', '"loss": "x"', '"loss": [1, 2]'])
def test_curves_of_what_is_not_a_number_are_refused_in_one_sentence(tmp_path, damage):
    (tmp_path / "metrics.jsonl").write_text(ROWS + ROW.replace("}", f", {damage}}}") + "\n")
    with pytest.raises(FileError, match="a metric of it is not a number"):
        RunFolder(tmp_path).curves()
