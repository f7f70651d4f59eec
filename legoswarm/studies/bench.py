"""`legoswarm bench`: training, compilation, worlds alone, acting, forward passes, and seconds to a given return."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from legoswarm.evaluate.policies import EPISODE_SEED
from legoswarm.fast.backend import on_cpu
from legoswarm.fast.device_lock import device_lock
from legoswarm.fast.kept import FOLDER
from legoswarm.learn.programs import Programs
from legoswarm.learn.train import TrainConfig, TrainState, configure
from legoswarm.policies.networks.roles import count_parameters, make_policies
from legoswarm.policies.networks.team import decide
from legoswarm.policies.saved.act import Swarm
from legoswarm.policies.saved.file import load_policy
from legoswarm.provenance import provenance
from legoswarm.scene import observe
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.task import State, Task

Row = dict[str, Any]


def bench(
    *,
    policies: Sequence[str],
    agents: Sequence[int],
    seeds: Sequence[int],
    steps: int,
    devices: Sequence[int] = (1,),
    algorithm: str | None = None,
    options: dict[str, Any] | None = None,
    until: float | None = None,
    worlds: int | None = None,
    forward: int | None = None,
    acting: str | None = None,
    entities: int = 1000,
    nearest: int = 0,
    command: str = "",
    keep: Callable[[dict[str, Any]], None] = lambda report: None,
) -> dict[str, Any]:
    """Return the rows that the command asks for, and what they depend on; `keep` gets what there is after each row."""
    options = options or {}

    def config(policy: str, count: int) -> TrainConfig:
        return configure("spread", policy, algorithm, agents=count, steps=steps, **options)

    def measured() -> Iterator[Row]:
        if acting is not None:
            yield acting_time(acting, entities, nearest)
        elif worlds is not None:
            yield from (world_speed(Spread(agents=count), worlds) for count in agents)
        elif forward is not None:
            yield from (forward_speed(config(policy, count), forward) for count in agents for policy in policies)
        elif until is not None:
            yield from (seconds_to_return(config(policy, agents[0]), seeds[0], until) for policy in policies)
        else:
            for count, side_by_side, several, policy in itertools.product(agents, seeds, devices, policies):
                yield training_speed(config(policy, count), side_by_side, several)

    report: dict[str, Any] = {"command": command, "date": datetime.date.today().isoformat(), "rows": []}
    report |= provenance()
    for row in measured():
        report["rows"].append(row)
        keep(report)
    return report


def format_bench(report: dict[str, Any]) -> str:
    """Return the rows as a table for people."""
    names = [name for name, value in report["rows"][0].items() if not isinstance(value, list)]

    def cell(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    # More figures than rows: each figure gets a line, each row a column.
    columns = [names, *([cell(row[name]) for name in names] for row in report["rows"])]
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    body = ["  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*body, f"{report['hardware']['device']}; jax {report['versions']['jax']}"])


def prepare(config: TrainConfig, seeds: int, devices: int = 1) -> tuple[TrainState, Programs]:
    """Do all that happens before the first step: make the initial state and compile the program that advances it."""
    programs = Programs(config, range(seeds), devices=devices)
    state = programs.first_state()
    programs.compile(state, measuring=False)
    return state, programs


@device_lock(alone=True)
def training_speed(config: TrainConfig, seeds: int, devices: int = 1) -> Row:
    """Time one run of `config.steps` steps a seed after a short warm-up, and its start, cold and from the caches."""
    with _fresh_cache():
        cold, _ = _timed(lambda: prepare(config, seeds, devices)[0])
        jax.clear_caches()
        started = time.monotonic()
        state, programs = prepare(config, seeds, devices)
        cached = time.monotonic() - started
    state, _ = jax.block_until_ready(programs.advance(state, 2))
    spent = time.process_time()
    seconds, _ = _timed(lambda: programs.advance(state, config.iterations))
    spent = time.process_time() - spent
    steps = config.iterations * config.batch * seeds
    layout = config.task.layout
    parameters = count_parameters(make_policies(config.policy, layout, key=jax.random.key(0)))
    return {
        "kind": "training",
        "policy": config.policy.name,
        "agents": layout.agents,
        "seeds": seeds,
        "devices": devices,
        "width": config.policy.width,
        "critic": config.policy.critic,
        "steps": config.iterations * config.batch,
        **_settings(config),
        "actor_parameters": parameters["actor"],
        "critic_parameters": parameters["critic"],
        "compile_cold_seconds": cold,
        "compile_cached_seconds": cached,
        "run_seconds": seconds,
        "cpu_seconds": spent,
        "env_steps_per_second": steps / seconds,
        "agent_steps_per_second": steps * layout.agents / seconds,
        "peak_megabytes": peak_megabytes(),
    }


@device_lock(alone=True)
def seconds_to_return(config: TrainConfig, seeds: int, target: float, chunk: int = 25, episodes: int = 200) -> Row:
    """Count the seconds, compilation included, until the mean over seeds of the primary figure reaches `target`."""
    started = time.monotonic()
    programs = Programs(config, range(seeds), episodes)
    state = programs.first_state()
    programs.compile(state)
    reached, steps, seconds, curve = None, 0, 0.0, []
    for done in range(chunk, config.iterations + chunk, chunk):
        state, _ = programs.advance(state, min(chunk, config.iterations - done + chunk))
        figures = jax.device_get(programs.measure(state, EPISODE_SEED))[config.task.primary]
        steps, mean = min(done, config.iterations) * config.batch, float(np.mean(figures))
        seconds = time.monotonic() - started
        curve.append({"steps": steps, "seconds": seconds, "mean": mean})
        sys.stderr.write(f"{steps:>12,} steps  {seconds:6.1f} s  {mean:9.1f}\n")
        if mean >= target:
            reached = seconds
            break
    return {
        "kind": "to_return",
        "policy": config.policy.name,
        "agents": config.task.layout.agents,
        "seeds": seeds,
        "width": config.policy.width,
        "critic": config.policy.critic,
        **_settings(config, "epochs", "minibatches", "lr", "entropy"),
        "target": target,
        "seconds": reached,
        "steps": steps,
        "first_evaluation_seconds": curve[0]["seconds"],
        "curve": curve,
    }


@device_lock(alone=True)
def world_speed(task: Task, worlds: int, steps: int = 1000) -> Row:
    """Count environment steps per second: random actions, worlds that end reset, observations and rewards consumed."""

    def step(carry: Any, key: Any) -> Any:
        states, consumed = carry
        key_action, key_reset = jax.random.split(key)
        actions = jax.random.uniform(
            key_action, (worlds, task.layout.agents, task.layout.dimension), minval=-1.0, maxval=1.0
        )
        fresh = jax.vmap(task.reset)(jax.random.split(key_reset, worlds))

        def one(state: State, action: Any, new: State, consumed: Any) -> Any:
            after = task.step(state, action)
            scene = task.scene(after)
            for role in task.layout.controlled_roles:
                members = jnp.arange(task.layout.members(role))
                views = jax.vmap(lambda member, role=role: observe(scene, role, member))(members)
                consumed = consumed + sum(leaf.astype(jnp.float32).sum() for leaf in jax.tree.leaves(views))
            consumed = consumed + task.reward(after).sum()
            ended = task.terminated(after) | (after.time >= task.horizon)
            return jax.tree.map(lambda a, b: jnp.where(ended, a, b), new, after), consumed

        return jax.vmap(one)(states, actions, fresh, consumed), None

    @jax.jit
    def run(states: State, key: Any) -> Any:
        unroll = 1 if jax.default_backend() == "cpu" else 5  # where a step is over before the next is launched
        return jax.lax.scan(step, (states, jnp.zeros(worlds)), jax.random.split(key, steps), unroll=unroll)[0]

    states = jax.jit(jax.vmap(task.reset))(jax.random.split(jax.random.key(0), worlds))
    compile_seconds, _ = _timed(lambda: run(states, jax.random.key(1)))
    seconds = min(_timed(lambda at=at: run(states, jax.random.key(at)))[0] for at in range(2, 5))
    return {
        "kind": "worlds",
        "task": task.name,
        "agents": task.layout.agents,
        "worlds": worlds,
        "steps": steps,
        "first_call_seconds": compile_seconds,
        "env_steps_per_second": worlds * steps / seconds,
    }


@device_lock(alone=True)
def acting_time(name: str, entities: int, nearest: int = 0, calls: int = 50) -> Row:
    """Time `act`, in milliseconds, for one agent among `entities` others, of a role that does not act."""
    swarm = Swarm(load_policy(name, nearest=nearest))
    roles = [swarm.controlled_roles[0], *[swarm.roles[-1]] * entities]
    positions, velocities = np.random.default_rng(0).uniform(-1, 1, (2, len(roles), swarm.file.layout.dimension))
    times = [_timed(lambda: swarm.act(positions, velocities, roles))[0] for _ in range(calls)][5:]
    return {
        "kind": "acting",
        "policy": name,
        "entities": entities,
        "nearest": nearest,
        "median_milliseconds": 1e3 * float(np.median(times)),
        "largest_milliseconds": 1e3 * max(times),
    }


@device_lock(alone=True)
def forward_speed(config: TrainConfig, worlds: int, calls: int = 10) -> Row:
    """Time one decision of every agent in `worlds` worlds."""
    task = config.task
    policies = on_cpu(jax.jit(lambda: make_policies(config.policy, task.layout, key=jax.random.key(0))))
    actors = {role: policy.actor for role, policy in policies.items()}
    states = jax.jit(jax.vmap(task.reset))(jax.random.split(jax.random.key(0), worlds))
    act = jax.jit(jax.vmap(lambda state: {r: d.mode for r, d in decide(actors, task.scene(state)).items()}))
    act(states)
    seconds = min(_timed(lambda: act(states))[0] for _ in range(calls))
    return {
        "kind": "forward",
        "policy": config.policy.name,
        "agents": task.layout.agents,
        "worlds": worlds,
        "seconds": seconds,
        "agent_steps_per_second": worlds * task.layout.agents / seconds,
    }


def _settings(config: TrainConfig, *names: str) -> dict[str, Any]:
    """Return the algorithm's name and those of its values that a row shows, where it has them."""
    shown = names or ("epochs", "minibatches")
    values = {name: getattr(config.algorithm, name) for name in shown if hasattr(config.algorithm, name)}
    return {"algorithm": config.algorithm.name, **values}


def _timed(fun: Callable[[], Any]) -> tuple[float, Any]:
    started = time.monotonic()
    result = jax.block_until_ready(fun())
    return time.monotonic() - started, result


@contextlib.contextmanager
def _fresh_cache() -> Iterator[None]:
    """Use empty caches for a while: those of compiled programs, JAX's and this package's."""
    before, kept = jax.config.values["jax_compilation_cache_dir"], os.environ.get(FOLDER, "")
    jax.clear_caches()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = f"{folder}/programs"
        jax.config.update("jax_compilation_cache_dir", folder)
        compilation_cache.reset_cache()
        try:
            yield
        finally:
            os.environ[FOLDER] = kept
            jax.config.update("jax_compilation_cache_dir", before)
            compilation_cache.reset_cache()


def peak_megabytes() -> float:
    """Return the most memory that was used: of the device since the process began; on CPUs of the process."""
    statistics = jax.devices()[0].memory_stats()
    if statistics and "peak_bytes_in_use" in statistics:
        return statistics["peak_bytes_in_use"] / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
