"""Pytrees of arrays as named arrays, and back."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import numpy as np

from legoswarm.fast.sharding import on_host
from legoswarm.files import FileError, check_array

Tree = TypeVar("Tree")


def named_leaves(tree: Any) -> dict[str, np.ndarray]:
    """Return every leaf under its path, such as `agent/actor/head/weight`; random keys as their raw bits."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): on_host(_raw(leaf)) for path, leaf in leaves}


def rebuild(skeleton: Tree, arrays: dict[str, np.ndarray], source: str) -> Tree:
    """Return the tree of `skeleton` (arrays or shapes) with leaves taken from `arrays`, each checked."""
    paths, treedef = jax.tree_util.tree_flatten_with_path(skeleton)
    wanted = {_name(path): leaf for path, leaf in paths}
    if missing := sorted(set(wanted) ^ set(arrays)):
        raise FileError(f"{source} does not fit the architecture it claims: {missing[0]!r} is missing or unknown")
    leaves = []
    for name, like in wanted.items():
        array = arrays[name]
        expected = jax.eval_shape(_raw, like)
        check_array(array, expected.shape, expected.dtype, name, source)
        leaf = jax.device_put(array)
        leaves.append(jax.random.wrap_key_data(leaf) if _is_key(like) else leaf)
    return jax.tree_util.tree_unflatten(treedef, leaves)


def take(tree: Tree, at: Any) -> Tree:
    """Return `leaf[at]` of every leaf, taken on the host: on a device each shape would be compiled for."""
    return jax.tree.map(lambda leaf: jax.device_put(on_host(leaf)[at]), tree)


def raw_leaves(tree: Any) -> list[Any]:
    """Return the leaves; random keys as their raw bits."""
    return [_raw(leaf) for leaf in jax.tree.leaves(tree)]


def from_raw(skeleton: Tree, leaves: list[Any]) -> Tree:
    """Return the tree of `skeleton` with leaves as `raw_leaves` gives them."""
    likes, treedef = jax.tree.flatten(skeleton)
    pairs = zip(likes, leaves, strict=True)
    return treedef.unflatten([jax.random.wrap_key_data(leaf) if _is_key(like) else leaf for like, leaf in pairs])


def _raw(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _name(path: tuple[Any, ...]) -> str:
    return "/".join(str(getattr(part, "name", getattr(part, "key", getattr(part, "idx", part)))) for part in path)
