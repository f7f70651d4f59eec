"""Record NumPy code as an ONNX graph, by NumPy's own protocols for arrays of other kinds.

A `Symbol` stands for an input or for the outcome of an operation. It carries an example of its value, so that NumPy
itself says what type and how many axes an outcome has; the sizes of the example's axes are no part of the graph,
except where the recorded code looks at them. Only what LEGO's actors need is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.lib.mixins import NDArrayOperatorsMixin
from onnx import helper, numpy_helper

OPSET = 18
IR_VERSION = 8  # what goes with the opset; newer ones are refused by older runtimes


class Recorder:
    """The nodes and constants of a graph that grows while NumPy code runs on its symbols."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: dict[tuple[Any, ...], onnx.TensorProto] = {}

    def input(self, name: str, example: np.ndarray, *axes: str | int) -> Symbol:
        """Add an input; axes that are named may have any size."""
        kind = helper.np_dtype_to_tensor_dtype(example.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, axes))
        return Symbol(self, name, example)

    def node(self, operator: str, example: np.ndarray, *inputs: Symbol | np.ndarray, **attributes: Any) -> Symbol:
        """Add a node and return its outcome."""
        name = f"v{len(self.nodes)}"
        names = [part.name if isinstance(part, Symbol) else self.constant(part) for part in inputs]
        self.nodes.append(helper.make_node(operator, names, [name], **attributes))
        return Symbol(self, name, example)

    def constant(self, value: np.ndarray) -> str:
        """Return the name of a constant, which is stored once."""
        key = (value.dtype, value.shape, value.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(value, f"c{len(self.constants)}")
        return self.constants[key].name

    def finish(
        self, name: str, output: str, symbol: Symbol, axes: tuple[str | int, ...], about: Mapping[str, str]
    ) -> bytes:
        """Return the file of the complete graph with one output, checked; `about` is its metadata."""
        kind = helper.np_dtype_to_tensor_dtype(symbol.dtype)
        nodes = [*self.nodes, helper.make_node("Identity", [symbol.name], [output])]
        outputs = [helper.make_tensor_value_info(output, kind, axes)]
        graph = helper.make_graph(nodes, name, self.inputs, outputs, list(self.constants.values()))
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, producer_name="legoswarm", opset_imports=opsets, ir_version=IR_VERSION)
        helper.set_model_props(model, dict(about))
        onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()


class Symbol(NDArrayOperatorsMixin):
    """An array whose values are known only when the graph runs."""

    def __init__(self, recorder: Recorder, name: str, example: np.ndarray):
        self.recorder, self.name, self.example = recorder, name, np.asarray(example)

    @property
    def dtype(self) -> np.dtype:
        """Return the type of its numbers."""
        return self.example.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of its example."""
        return self.example.shape

    def __len__(self) -> int:
        return len(self.example)

    def __array_namespace__(self) -> Any:
        return np

    def astype(self, dtype: Any) -> Symbol:
        """Return the array as numbers of another type."""
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.recorder.node("Cast", self.example.astype(dtype), self, to=to)

    def sum(self, axis: int, *, keepdims: bool = False) -> Symbol:
        """Return the sum along an axis."""
        return self.__array_ufunc__(np.add, "reduce", self, axis=axis, keepdims=keepdims)

    def __getitem__(self, key: Any) -> Symbol:
        keys = list(key) if isinstance(key, tuple) else [key]
        used = sum(part is not None and part is not Ellipsis for part in keys)
        at = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
        keys[at : at + 1] = [slice(None)] * (len(self.shape) - used)
        picked, axis, new = self, 0, []
        for place, part in enumerate(keys):
            if part is None:
                new.append(place - sum(isinstance(before, int) for before in keys[:place]))
            elif isinstance(part, int):
                picked = picked.recorder.node(
                    "Gather", picked.example.take(part, axis), picked, np.array(part), axis=axis
                )
            else:
                if part != slice(None):
                    bounds = [np.array([bound]) for bound in (part.start or 0, part.stop, axis)]
                    example = picked.example[(slice(None),) * axis + (part,)]
                    picked = picked.recorder.node("Slice", example, picked, *bounds)
                axis += 1
        if not new:
            return picked
        return picked.recorder.node("Unsqueeze", np.expand_dims(picked.example, tuple(new)), picked, np.array(new))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **how: Any) -> Any:
        example = getattr(ufunc, method)(*(_example(part) for part in inputs), **how)
        node = self.recorder.node
        if method == "reduce":
            operator = {np.add: "ReduceSum", np.maximum: "ReduceMax"}[ufunc]
            axes = np.atleast_1d(how.get("axis", 0))
            return node(operator, example, self, axes, keepdims=int(how.get("keepdims", False)))
        if ufunc is np.vecdot:
            return np.add.reduce(inputs[0] * inputs[1], axis=-1)
        if ufunc is np.hypot:  # in float64: squares of what float32 holds may be too small or too large for it
            wide = [part.astype(np.float64) for part in inputs]
            return np.sqrt(wide[0] * wide[0] + wide[1] * wide[1]).astype(self.dtype)
        if ufunc is np.not_equal:
            return node("Not", example, np.equal(*inputs))
        return node(_UFUNCS[ufunc], example, *_alike(inputs))

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, how: Mapping[str, Any]) -> Any:
        return _FUNCTIONS[function](*args, **how)


_UFUNCS = {
    np.add: "Add",
    np.subtract: "Sub",
    np.multiply: "Mul",
    np.divide: "Div",
    np.matmul: "MatMul",
    np.maximum: "Max",
    np.minimum: "Min",
    np.exp: "Exp",
    np.tanh: "Tanh",
    np.sqrt: "Sqrt",
    np.absolute: "Abs",
    np.greater: "Greater",
    np.less: "Less",
    np.equal: "Equal",
    np.bitwise_and: "And",
}


def _example(part: Any) -> Any:
    return part.example if isinstance(part, Symbol) else part


def _alike(parts: Any) -> list[Any]:
    """Turn numbers and arrays among the parts of an operation into constants of the common type."""
    dtype = np.result_type(*(_example(part) for part in parts))
    return [part if isinstance(part, Symbol) else np.asarray(part, dtype) for part in parts]


def _node(operator: str, function: Callable[..., Any], *inputs: Any, **attributes: Any) -> Symbol:
    """Add the node of a function, with what that function makes of the examples."""
    recorder = next(part.recorder for part in inputs if isinstance(part, Symbol))
    return recorder.node(operator, function(*map(_example, inputs)), *inputs, **attributes)


def _concatenate(parts: list[Symbol], axis: int) -> Symbol:
    return _node("Concat", lambda *arrays: np.concatenate(arrays, axis), *parts, axis=axis)


def _matrix_transpose(x: Symbol) -> Symbol:
    *before, row, column = range(len(x.shape))
    return _node("Transpose", np.matrix_transpose, x, perm=[*before, column, row])


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.where: lambda condition, yes, no: _node("Where", np.where, condition, *_alike((yes, no))),
    np.concatenate: _concatenate,
    np.reshape: lambda x, shape: _node("Reshape", np.reshape, x, np.array(shape)),
    np.matrix_transpose: _matrix_transpose,
    np.take: lambda x, at, axis: _node("Gather", lambda x, at: np.take(x, at, axis), x, at, axis=axis),
    np.cumsum: lambda x: _node("CumSum", np.cumsum, x, np.array(0)),
    np.clip: lambda x, low, high: np.minimum(np.maximum(x, low), high),
}
