"""Pictures are read back and compared by their pixels."""

import sys

import equinox as eqx
import jax
import numpy as np
import pytest
from PIL import Image

from legoswarm.evaluate.episodes import play
from legoswarm.layout import Layout
from legoswarm.policies.networks.roles import make_policies
from legoswarm.show.animate import animate
from legoswarm.show.draw import COLOURS, Failure, colours, draw_paths, save, view, views, visible_path
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag
from tests.policies import policy_of

SPREAD = Spread(agents=3, sizes=(2,), horizon=5)  # the third agent and the third landmark do not exist
TAG = Tag(pursuers=2, evaders=1, obstacles=1, arena=True, horizon=5)


def episode(task):
    policies = make_policies(policy_of(width=16, depth=1), task.layout, key=jax.random.key(0))
    actors = {role: policy.actor for role, policy in policies.items()}
    return jax.device_get(jax.jit(lambda key: play(task, actors, task.reset(key)))(jax.random.key(1)))


@pytest.fixture(scope="module")
def spread():
    return episode(SPREAD)


@pytest.fixture(scope="module")
def tag():
    return episode(TAG)


def draw_trajectories(task, trajectories, path, **how):
    """Write a still picture of some episodes."""
    save(draw_paths(task, [visible_path(task, trajectory) for trajectory in trajectories], **how), path)


def frames(path):
    with Image.open(path) as image:
        pictures = []
        for number in range(getattr(image, "n_frames", 1)):
            image.seek(number)
            pictures.append(np.asarray(image.convert("RGB")).astype(int))
    return np.stack(pictures)


def animation(folder, task, trajectory, **options):
    animate(task, trajectory, folder / "a.gif", **options)
    return frames(folder / "a.gif")


def with_positions(trajectory, positions):
    return eqx.tree_at(lambda t: t.states.position, trajectory, positions)


def test_a_gif_has_one_frame_for_each_step(tmp_path, tag):
    animate(TAG, tag, tmp_path / "a.gif", title="Tag", axes=True, arrows=True, fps=5)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == TAG.horizon
        assert image.info["duration"] == 200
    assert [file.name for file in tmp_path.iterdir()] == ["a.gif"]


def test_axes_and_arrows_are_drawn_on_request(tmp_path, tag):
    plain, axes, arrows = (
        animation(tmp_path, TAG, tag, **options) for options in ({}, {"axes": True}, {"arrows": True})
    )
    panel = np.s_[:, 40:500]  # below the legend
    assert plain.shape == axes.shape == arrows.shape
    assert (plain[panel] != axes[panel]).any()
    assert (plain[panel] != arrows[panel]).any()
    assert (axes[panel] != arrows[panel]).any()


def test_a_trail_is_drawn_behind_agents(tmp_path, spread):
    positions = spread.states.position.copy()
    positions[:, :3] = np.linspace(-0.8, 0.8, SPREAD.horizon, dtype=np.float32)[:, None, None]
    moving = with_positions(spread, positions)
    short, long = (animation(tmp_path, SPREAD, moving, trail=trail) for trail in (0, 3))
    assert (short[0] == long[0]).all()
    assert (short[-1] != long[-1]).any()


def test_what_does_not_exist_is_not_drawn(tmp_path, spread):
    def pictures(trajectory):
        draw_trajectories(SPREAD, [trajectory], tmp_path / "a.png")
        moving = animation(tmp_path, SPREAD, trajectory, axes=True, arrows=True)
        return [moving, frames(tmp_path / "a.png")]

    gone = ~spread.states.exists[0]
    assert gone.sum() == 2
    elsewhere = spread.states.position.copy()
    elsewhere[:, gone] = [0.3, 7.0]
    appeared = eqx.tree_at(lambda t: t.states.exists, spread, np.ones_like(spread.states.exists))
    for before, hidden, shown in zip(
        pictures(spread), pictures(with_positions(spread, elsewhere)), pictures(appeared), strict=True
    ):
        assert (before == hidden).all()
        assert (before != shown).any()


def test_an_episode_is_shown_until_it_ends(tmp_path, tag):
    ended = eqx.tree_at(lambda t: t.alive, tag, np.arange(TAG.horizon) < 4)
    assert len(animation(tmp_path, TAG, ended, axes=True, arrows=True)) == 4


def test_jax_and_numpy_arrays_give_the_same_file(tmp_path, tag):
    animate(TAG, tag, tmp_path / "numpy.gif")
    animate(TAG, jax.device_put(tag), tmp_path / "jax.gif")
    assert (tmp_path / "numpy.gif").read_bytes() == (tmp_path / "jax.gif").read_bytes()


def test_the_html_page_needs_nothing_else(tmp_path, tag):
    animate(TAG, tag, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert page.count("data:image/png;base64") == TAG.horizon
    assert "http" not in page
    assert 'class="fa' not in page
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_still_pictures(tmp_path, tag, suffix, magic):
    path = tmp_path / "new" / f"a.{suffix}"
    draw_trajectories(TAG, [tag] * 5, path, titles=list("abcde"))
    assert path.read_bytes().startswith(magic)
    animate(TAG, tag, path, title="one")
    assert path.read_bytes().startswith(magic)
    assert list(path.parent.iterdir()) == [path]


def test_a_cross_marks_a_failure(tmp_path, tag):
    positions = tag.states.position.copy()
    positions[:, 0] = positions[0, 0]
    positions[3, 0] += 0.5
    moved = with_positions(tag, positions)
    pictures = []
    for failure in (None, Failure(0, 0), Failure(0, 3), Failure(0, 99)):  # the last one is after the end
        draw_trajectories(TAG, [moved], tmp_path / "a.png", failures=[failure])
        pictures.append(frames(tmp_path / "a.png")[0][:-60])  # above the legend
    without, start, later, never = pictures
    assert (never == without).all()
    places = [np.argwhere((picture != without).any(-1)).mean(0) for picture in (start, later)]
    down, right = places[1] - places[0]
    assert right > 50
    assert down == pytest.approx(-right, abs=3)


def test_the_view_holds_every_path_and_the_arena(tag):
    positions = tag.states.position.copy()
    positions[2, 0] = [5.0, -1.0]
    positions[3, 1] = np.nan  # a policy that has diverged
    low, high = view(TAG, [visible_path(TAG, with_positions(tag, positions))])
    assert high[0] > 5.0
    assert (low < -1.2).all()
    assert (high > 1.2).all()
    np.testing.assert_allclose(high[0] - low[0], high[1] - low[1])


def test_who_went_far_away_does_not_make_the_other_panels_small(tag):
    usual = visible_path(TAG, tag)
    wide, lost = usual.copy(), usual.copy()
    wide[2, 0], lost[2, 0] = [1.6, 0.0], [9.0, 0.0]
    boxes = views(TAG, [usual, lost, wide])
    np.testing.assert_array_equal(boxes[0], view(TAG, [usual, wide]))
    np.testing.assert_array_equal(boxes[1], view(TAG, [lost]))
    np.testing.assert_array_equal(boxes[2], boxes[0])


def test_a_role_has_one_colour_in_every_picture():
    layout = Layout(("agent", "cow", "obstacle"), (2, 1, 1), controlled=1)
    palette = colours(layout)
    assert {palette["agent"], palette["obstacle"]} == {COLOURS["agent"], COLOURS["obstacle"]}
    assert palette["cow"] not in COLOURS.values()


@pytest.mark.parametrize("name", ["a.avi", "a", "a.gif.txt"])
def test_an_unknown_suffix_is_refused(tmp_path, tag, name):
    for write in (lambda path: animate(TAG, tag, path), lambda path: draw_trajectories(TAG, [tag], path)):
        with pytest.raises(ValueError, match=r"written as one of .*\.png"):
            write(tmp_path / "new" / name)
    assert not list(tmp_path.iterdir())


def test_an_mp4_without_ffmpeg_is_refused(tmp_path, tag, monkeypatch):
    monkeypatch.setattr("matplotlib.animation.FFMpegWriter.isAvailable", lambda: False)
    with pytest.raises(ValueError, match="needs ffmpeg"):
        animate(TAG, tag, tmp_path / "a.mp4")
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_old_file(tmp_path, tag, monkeypatch):
    path = tmp_path / "a.gif"
    path.write_text("old")
    monkeypatch.setattr("matplotlib.animation.PillowWriter.finish", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        animate(TAG, tag, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_arguments_are_refused(tmp_path, tag):
    batch = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), tag)
    for trajectory, task in ((batch, TAG), (tag, SPREAD)):
        with pytest.raises(ValueError, match="needs one trajectory"):
            animate(task, trajectory, tmp_path / "a.gif")
    with pytest.raises(ValueError, match="at least 1"):
        animate(TAG, tag, tmp_path / "a.gif", fps=0)
    with pytest.raises(ValueError, match="no trajectory"):
        draw_trajectories(TAG, [], tmp_path / "a.png")
    with pytest.raises(ValueError, match="as many titles"):
        draw_trajectories(TAG, [tag], tmp_path / "a.png", titles=["a", "b"])
    with pytest.raises(ValueError, match="as many failures"):
        draw_trajectories(TAG, [tag], tmp_path / "a.png", failures=[])
    assert not list(tmp_path.iterdir())


def test_pyplot_is_left_alone(tmp_path, tag):
    animate(TAG, tag, tmp_path / "a.gif")
    pyplot = sys.modules.get("matplotlib.pyplot")  # another test may have imported it
    assert pyplot is None or not pyplot.get_fignums()
