"""Studies: what is done is not done again, what was killed goes on, and the catalogue is sound."""

import dataclasses
import itertools
import json
import shutil
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legoswarm.cli import main
from legoswarm.files import FileError
from legoswarm.learn.folder import RunFolder
from legoswarm.studies import rules
from legoswarm.studies import run as running
from legoswarm.studies.catalogue import ALL, METHODS, STUDIES, Study
from legoswarm.studies.failure import KINDS, SEVERAL, FailingTag
from legoswarm.studies.measures import agent_failure, evaluated, head_to_head, symmetries, trajectories
from legoswarm.studies.part import SCALES, Part, Scale, Training
from legoswarm.studies.results import Results
from legoswarm.studies.run import Setup, chosen_parts, list_studies, run_studies, study_setup
from legoswarm.tasks.tag import Tag
from tests import linear
from tests.browser import BROWSER, in_ci, opened
from tests.page import check_page
from tests.policies import policy_of
from tests.saved import save_small
from tests.tiny import TINY, Yard, compiled

ROOT = Path(__file__).parent.parent
SMALL = {"envs": 2, "rollout": 6, "epochs": 1, "minibatches": 1}
SCALE = Scale("test", seeds=2, episodes=3, evaluations=2, share=0.0, compile_fast=True, algorithms={"mappo": SMALL})
YARD = Training(Yard(), "tiny", 1000)
LATER = dataclasses.replace(YARD, start=YARD)


@pytest.fixture
def setup(tmp_path, monkeypatch):
    """A workshop for a study of one part."""
    monkeypatch.setitem(STUDIES, "yards", Study("one part", lambda scale: [Part("plain", (YARD,), (evaluated(),))]))
    return Setup(SCALE, 2, tmp_path / "runs", tmp_path / "results", ("tiny",), "legoswarm study yards")


@pytest.fixture
def calls(monkeypatch):
    """How often a training was started and resumed."""
    counts = {"start_run": 0, "resume_run": 0}

    def counted(name):
        function = getattr(running, name)

        def call(*args, **kwargs):
            counts[name] += 1
            return function(*args, **kwargs, quiet=True)

        return call

    for name in counts:
        monkeypatch.setattr(running, name, counted(name))
    return counts


def result(setup, part):
    return json.loads((setup.out / "yards" / f"{part}.json").read_text())


def test_several_processes_share_a_training(setup, calls, monkeypatch):
    """While somebody else is at it: wait; then what is finished is taken, what was left is gone on with."""
    monkeypatch.setattr(running, "PAUSE", 0.05)
    said, path = [], setup.runs / YARD.folder(SCALE, 2)
    real, other = running.start_run, RunFolder(path).held()

    def say(text):
        said.append(text)
        threading.Timer(0.5, other.__exit__, (None, None, None)).start()

    def beaten_to_it(config, out, *args, **kwargs):
        """Another process begins the same run a moment before."""
        RunFolder(out).create(config, "")
        other.__enter__()
        return real(config, out, *args, **kwargs)

    monkeypatch.setattr(running, "say", say)
    monkeypatch.setattr(running, "start_run", beaten_to_it)
    assert running.train(YARD, setup).path == path
    assert len(said) == 1
    assert "another process" in said[0]
    assert RunFolder(path).read_metrics()[-1]["iteration"] == 2
    assert calls["resume_run"] > 2  # refused until the other one let go


@pytest.mark.slow
def test_parts_side_by_side(tmp_path, capfd, monkeypatch):
    """Two that need the same training, one that fails, at most two at a time."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a lock of their own: one is timed, and waits for every other training
    words = f"--scale tiny --runs {tmp_path / 'runs'} --out {tmp_path / 'out'} --methods mappo"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "spread-3").write_text("")  # no folder: nothing can be written there
    names = "generalization/mappo-3 run-time/mappo-3 spread-3/mappo"
    assert main(f"study {names} {words} --jobs 2".split()) == 2
    err = capfd.readouterr().err
    assert "1 of 3 parts failed: spread-3/mappo" in err
    assert "[3/3]" in err
    for part in ("generalization/mappo-3", "run-time/mappo-3"):
        assert f"{part} took" in err
        assert json.loads((tmp_path / "out" / f"{part}.json").read_text())["command"].startswith(
            f"legoswarm study {part}"
        )
    assert "step" in (tmp_path / "runs" / "run-time-mappo-3.log").read_text()


def test_a_study_runs_through_once(setup, calls, monkeypatch):
    parts = [
        Part("plain", (YARD,), (evaluated(agents=(2, 3)), trajectories("an episode"))),
        Part("warm", (LATER,), (evaluated(label={"kind": "warm"}),), "tiny-curr"),
    ]
    monkeypatch.setitem(STUDIES, "yards", Study("two parts", lambda scale: parts))
    run_studies(["yards"], setup)
    assert calls == {"start_run": 2, "resume_run": 0}  # the warm start's own run is the first part's
    plain, warm = result(setup, "plain"), result(setup, "warm")
    assert [(row["agents"], row["seed"]) for row in plain["rows"]] == [(2, 0), (2, 1), (3, 0), (3, 1)]
    assert plain["curve"]["steps"] == [12, 24]
    assert np.array(plain["curve"]["values"]).shape == (2, 2)
    assert plain["seeds"] == [0, 1]
    assert plain["steps"] == 24
    assert plain["label"] == "tiny"
    assert warm["label"] == "tiny-curr"
    assert {row["kind"] for row in warm["rows"]} == {"warm"}
    assert np.array(plain["trajectories"][0]["positions"]).shape == (6, 3, 2)
    for field in ("command", "hardware", "versions", "seconds", "train_seconds", "date"):
        assert plain[field], field
    before = {path: path.read_bytes() for path in setup.out.rglob("*.json")}
    run_studies(["yards"], setup)
    assert calls == {"start_run": 2, "resume_run": 0}
    assert before == {path: path.read_bytes() for path in setup.out.rglob("*.json")}
    assert list_studies(["yards"], setup).count("done") == 2


def test_a_killed_part_goes_on_where_it_was(setup, calls, monkeypatch, tmp_path):
    class Kill(BaseException):
        pass

    append = RunFolder.append_metrics

    def killed(folder, row):
        if row["iteration"] == 2:
            raise Kill
        append(folder, row)

    monkeypatch.setattr(RunFolder, "append_metrics", killed)
    with pytest.raises(Kill):
        run_studies(["yards"], setup)
    monkeypatch.setattr(RunFolder, "append_metrics", append)
    assert not setup.out.exists()
    run_studies(["yards"], setup)
    assert calls == {"start_run": 1, "resume_run": 1}
    whole = dataclasses.replace(setup, runs=tmp_path / "runs-whole", out=tmp_path / "whole")
    run_studies(["yards"], whole)
    for field in ("curve", "rows"):
        assert result(setup, "plain")[field] == result(whole, "plain")[field]


def test_training_here_and_measuring_there(setup, calls, monkeypatch):
    """Measuring needs the run of the part alone, not the one it started from."""
    parts = [Part("warm", (LATER,), (evaluated(),))]
    monkeypatch.setitem(STUDIES, "yards", Study("one part", lambda scale: parts))
    run_studies(["yards/warm"], setup, train_only=True)
    assert calls == {"start_run": 2, "resume_run": 0}
    assert not setup.out.exists()
    shutil.rmtree(setup.runs / YARD.folder(setup.scale, setup.seeds))
    run_studies(["yards"], setup)
    assert calls == {"start_run": 2, "resume_run": 0}
    assert len(result(setup, "warm")["rows"]) == 2


def test_parts_by_name():
    setup = study_setup("full")
    names = ["spread-3/pic", "ood", "spread-3/lego", "ood/lego"]
    got = [f"{study}/{part.name}" for study, part in chosen_parts(names, setup)]
    assert got == ["spread-3/lego", "spread-3/pic", *(f"ood/{part.name}" for part in setup.parts("ood"))]
    assert len(chosen_parts(["all"], setup)) == sum(len(setup.parts(study)) for study in STUDIES)


def test_results_of_other_settings_are_not_mixed(setup, calls):
    run_studies(["yards"], setup)
    with pytest.raises(FileError, match="other settings"):
        run_studies(["yards"], dataclasses.replace(setup, seeds=1))


def test_a_part_that_fails_is_named_and_the_others_go_on(setup, calls, monkeypatch, capsys, optimised):
    bad = Part("bad", (YARD,), (evaluated(teams=("3v2",)),))
    good = Part("good", (YARD,))
    monkeypatch.setitem(STUDIES, "yards", Study("one fails", lambda scale: [bad, good]))
    with pytest.raises(ValueError, match="1 of 2 parts failed: yards/bad"):
        run_studies(["yards"], setup)
    assert "no pursuers and evaders" in capsys.readouterr().err
    assert result(setup, "good")["part"] == "good"
    assert not (setup.out / "yards" / "bad.json").exists()
    assert not jax.config.read("jax_disable_most_optimizations")


def test_different_trainings_have_different_folders():
    variants = [
        YARD,
        LATER,
        dataclasses.replace(YARD, task=Yard(agents=3)),
        dataclasses.replace(YARD, options=(("log_std", -1.0),)),
        dataclasses.replace(YARD, seeds=1),
        dataclasses.replace(LATER, start=dataclasses.replace(YARD, seeds=1)),
    ]
    folders = {training.folder(SCALE, 2) for training in variants}
    assert len(folders) == len(variants)
    assert all(name.startswith("yard-") and "tiny-24" in name for name in folders)
    assert YARD.folder(SCALE, 3) not in folders


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_every_training_of_the_catalogue_is_possible(scale):
    for study in STUDIES.values():
        parts = list(study.parts(scale))
        assert parts
        for training in [policy for part in parts for policy in part.policies if isinstance(policy, Training)]:
            config = training.config(scale, scale.seeds, Path("runs"))
            assert len(config.seeds) <= (3 if training.method == "segnn" else scale.seeds)
            assert (config.start is None) == (training.start is None)


def test_studies_of_the_full_scale_share_the_four_agent_run():
    setup = study_setup("full")
    parts = {f"{study}/{part.name}": part for study in STUDIES for part in setup.parts(study)}
    for one, other in (
        ("generalization/lego", "curriculum/lego-scl"),
        ("generalization/lego", "beyond/large-teams"),
    ):
        assert parts[one].policies == parts[other].policies
    assert parts["spread-6/pic"].policies == parts["generalization/pic-6"].policies
    assert len(parts) == sum(len(list(STUDIES[s].parts(setup.scale))) for s in STUDIES) - _planar(setup.scale)


def test_the_committed_results_are_those_of_the_catalogue():
    """Every file is a part of it that was made with today's settings, and every part of the paper's methods is done."""
    setup = study_setup("full", methods=ALL, out=ROOT / "results" / "studies")
    listed = [line.split() for line in list_studies(["all"], setup).splitlines() if line.startswith("  ")]
    done = {words[1] for words in listed if words[0] == "done"}
    assert done == {str(path.relative_to(setup.out).with_suffix("")) for path in setup.out.rglob("*.json")}
    waiting = {words[0] for words in listed if words[0] != "done"}
    later = ("agent-failure/lego-seeds", "run-time/mappo-equal", "navigation/lego-free")
    assert all("segnn-planar" in name or name.startswith(later) for name in waiting)


def test_another_algorithm_trains_beside_the_same_runs():
    setup = study_setup("full")
    parts = {study: {part.name: part for part in setup.parts(study)} for study in ("algorithms", "spread-3")}
    for method in ("lego", "mappo"):
        [same] = parts["spread-3"][method].policies
        [other] = parts["algorithms"][f"{method}-masac"].policies
        assert dataclasses.replace(other, algorithm="mappo", options=()) == same
        assert other.folder(setup.scale, 10).startswith(f"spread-3v3-{method}-masac-2000000-")
        assert same.folder(setup.scale, 10).startswith(f"spread-3v3-{method}-2000000-")
        assert other.config(SCALES["tiny"], 1, Path()).train.iterations == 2


def _planar(scale):
    return sum("segnn-planar" in part.methods for study in STUDIES.values() for part in study.parts(scale))


def test_tiny_has_one_size_for_each_method():
    parts = [part for study in STUDIES.values() for part in study.parts(SCALES["tiny"])]
    tasks = {policy.task for part in parts for policy in part.policies if isinstance(policy, Training)}
    assert {task.agents for task in tasks if task.name == "spread"} == {3}


def test_methods_can_be_left_out():
    setup = study_setup("full", methods=["lego", "mappo"])
    assert [part.name for part in setup.parts("spread-3")] == ["lego", "mappo"]
    meetings = [part.name for part in setup.parts("head-to-head")]
    pairs = ["lego-lego", "lego-mappo", "mappo-lego", "mappo-mappo"]
    assert meetings == [*pairs, "lego-1e6-mappo", "lego-full-mappo"]
    assert "segnn-planar" not in METHODS
    with pytest.raises(ValueError, match="no part of ood is left"):
        run_studies(["ood"], study_setup("full", methods=["pic"]))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("study nothing --list", "unknown study 'nothing'"),
        ("study ood/nothing --list", "ood has no part 'nothing'; it has: lego, mappo-local, mappo, segnn"),
        ("study ood --scale huge --list", "unknown scale 'huge'"),
        ("study ood --methods qmix --list", "unknown method 'qmix'"),
        ("study ood --seeds 0 --list", "at least one seed"),
        ("report --results nowhere", "nowhere is not a folder of results"),
    ],
)
def test_impossible_wishes_are_one_sentence(line, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_list_says_what_there_is(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["study", "all", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(f"{study}: " in out for study in STUDIES)
    assert "curriculum/lego-curr-8" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["without", "kept", "removed"])
def test_a_failed_pursuer_stops_or_is_gone(kind):
    task = FailingTag(pursuers=2, evaders=1, kind=kind, at=3)
    state, action = task.reset(jax.random.key(0)), jnp.ones((3, 2))
    step = compiled(task.step, state, action)
    places = []
    for _ in range(6):
        state = step(state, action)
        places.append(np.asarray(state.position[0]))
    moved = [not np.array_equal(a, b) for a, b in itertools.pairwise(places)]
    assert moved == [True, True, *[kind == "without"] * 3]
    assert bool(state.exists[0]) == (kind != "removed")
    assert np.any(np.asarray(state.velocity[0])) == (kind == "without")


def test_an_unknown_failure_is_refused():
    with pytest.raises(ValueError, match="kind must be without, kept or removed, not 'gone'"):
        FailingTag(kind="gone")


def test_captures_count_after_the_failure_and_without_the_failed():
    place = jnp.array([[0.0, 0.0], [0.0, 0.05], [0.0, 0.02], [0.9, 0.9], [-0.9, 0.9]])
    start = FailingTag(pursuers=2, evaders=1, kind="kept").reset(jax.random.key(0))
    counts = {}
    for kind in ("without", "kept"):
        for time in (30, 31):
            state = dataclasses.replace(start, position=place, time=jnp.array(time))
            counts[kind, time] = float(FailingTag(pursuers=2, evaders=1, kind=kind).measure(state)["captures_after"])
    assert counts == {("without", 30): 0, ("without", 31): 2, ("kept", 30): 0, ("kept", 31): 1}


def test_the_remaining_pursuer_flies_at_the_nearest_evader():
    """At the first of two evaders, away from it, at a right angle; not before the failure."""
    task = FailingTag(pursuers=2, evaders=2, obstacles=0, kind="kept", at=3)
    start = task.reset(jax.random.key(0))
    place = jnp.array([[9.0, 9.0], [0.0, 0.0], [1.0, 0.0], [0.0, 5.0]])
    for velocity, heading in (((2.0, 0.0), 1), ((-1.0, 0.0), -1), ((0.0, 3.0), 0), ((0.0, 0.0), 0)):
        speeds = jnp.zeros((4, 2)).at[1].set(jnp.array(velocity))
        for time, share in ((3, 0), (4, 1)):
            state = dataclasses.replace(start, position=place, velocity=speeds, time=jnp.array(time))
            assert float(task.measure(state)["heading"]) == share * heading
    figures = task.figures({name: np.ones(97) for name in ("heading", "captures_after", "survivors_captures")})
    assert figures["heading_after"] == 1


CHASE = Tag(pursuers=2, evaders=1, obstacles=1, horizon=10)


def test_symmetries_are_measured(tmp_path):
    # In frames, but with the pursuers in the order of their numbers: the evader minds when they are swapped.
    config = policy_of("mappo-local", width=4)
    measured = symmetries()([str(save_small(tmp_path / "tag", CHASE, config=config))], SCALE)
    turned = {f"rotated by {angle} degrees" for angle in (37, 90)}
    assert set(measured["errors"]) == {"two pursuers swapped", "reflected", "moved", *turned}
    errors = {name: error["quantile"] for name, error in measured["errors"].items()}
    assert errors.pop("two pursuers swapped") > 0.1
    assert max(errors.values()) < 1e-3
    swapped = next(scene for scene in measured["scenes"] if "swapped" in scene["title"])
    original = measured["scenes"][0]
    assert swapped["positions"][0] == original["positions"][1] != original["positions"][0]
    assert swapped["actions"][0] == pytest.approx(original["actions"][1], abs=1e-3)


def test_policies_meet_seed_by_seed(tmp_path):
    policy = str(save_small(tmp_path / "tag", CHASE, seeds=(0, 1), config=TINY))
    met = head_to_head()([policy, policy], SCALE)
    assert [row["seed"] for row in met["rows"]] == [0, 1]
    assert np.array(met["trajectories"][0]["positions"]).shape == (10, 4, 2)


def test_failures_are_measured_for_every_policy(tmp_path):
    policy = str(save_small(tmp_path / "tag", CHASE, seeds=(0, 1), config=TINY))
    found = agent_failure(trials=0)([policy], SCALE)
    assert [(row["failure"], row["seed"]) for row in found["rows"]] == [
        (kind, seed) for kind in KINDS for seed in (0, 1)
    ]
    assert all(-1 <= row["heading_after"] <= 1 for row in found["rows"])
    assert found["trajectories"] == []
    rows = [{**row, "survivors_captures": 2.0 + row["seed"] / 10} for row in found["rows"]]
    part = {"label": SEVERAL, "scale": "full", "rows": rows}
    [over_policies] = rules.after_failure("kept", None)(Results({"agent-failure": {"lego-seeds": part}}))
    assert over_policies.evidence.startswith(f"{SEVERAL} (survivors_captures, kept) 2.0 [")
    assert over_policies.agrees


# All of it at the smallest scale


@pytest.mark.slow
@pytest.mark.longest
def test_all_studies_run_through_and_are_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["study", "all", "--scale", "tiny"]
    done = linear.run(*words)
    assert done.returncode == 0, done.stderr
    setup = study_setup("tiny")
    assert all(setup.done(study, part) for study in STUDIES for part in setup.parts(study))
    assert main(["report", "--results", str(setup.out), "--plots", "figures", "--markdown", "tables.md"]) == 0
    text = Path("report.html").read_text()
    page = check_page(text)
    assert "<p class='open'>" not in text  # nothing is missing
    drawn = {"tag", "head-to-head", "ood", "agent-failure"}
    pictures = {"equivariance", "spread-3", "spread-6", "tag", "head-to-head", "agent-failure", "algorithms", "beyond"}
    assert {path.stem for path in Path("figures").iterdir()} == pictures | {f"{study}-trajectories" for study in drawn}
    assert len(page.data) == len(drawn)
    assert text.count('<path class="cross"') == 3
    assert text.count(f"legoswarm {' '.join(words)}</code>") == len(STUDIES)
    assert "scale tiny: a look, not a result" in Path("tables.md").read_text()
    assert len(text) < 2e6
    if BROWSER or in_ci():
        seen = opened(text, tmp_path)
        assert (seen["errors"], seen["players"], len(seen["images"])) == ([], str(len(drawn)), len(page.images))
        assert all(min(box) > 50 for box in seen["images"] + seen["drawings"])
