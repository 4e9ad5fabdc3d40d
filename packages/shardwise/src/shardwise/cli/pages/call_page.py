"""What happens to a call of an operator, beside its rule: what is left to be summed, its cost, and what torch does.

The example of the rule's page is called for real: what the dispatcher sees below autograd, forward and backward, is
written down, so the page says what the installed torch does.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch

from shardwise.diagnostics.printing.printable import columns
from shardwise.interop.torch_call import TorchFunction
from shardwise.interop.torch_compat import DispatchMode, OpOverloadPacket, dispatch_keys
from shardwise.op_rules.propagation.dim_labels import Shape
from shardwise.op_rules.schema import Kind, OpRule
from shardwise.planner.cost import cost_of
from shardwise.types.placement import P

from .example_calls import call_of
from .rule_page import Example, RuleLine, examples_of, is_listed, placements

RANKS = 2
MOST_TRIED = 6
DTYPE = "float32"
_FURTHER: tuple[dict[str, object], ...] = (
    {},
    {"dim": -1},
    {"size": (4, 6, 8)},
    {"p": 0.5},
)
"""What calls need beside tensors, tried in this order."""
_FURTHER_OF_MADE: tuple[dict[str, object], ...] = (
    *_FURTHER,
    {"fill_value": 1.0},
    {"size": (2, 4), "fill_value": 1.0},
    {"data": 1.0},
    {"s": 1.0},
    {"low": 0, "high": 2},
    {"high": 2},
    {"num_samples": 2},
)
"""The same for what makes tensors or numbers."""
_WHOLE: tuple[frozenset[str], ...] = (
    frozenset(),
    frozenset({"index", "indices", "target"}),
    frozenset({"input"}),
)
"""Operands that hold whole numbers, tried in this order."""
_RUN = frozenset({Kind.PURE, Kind.CONSTANT, Kind.ZERO, Kind.RANDOM})
_UNSUITED = (TypeError, ValueError, RuntimeError, AttributeError, IndexError)


class _Way(Enum):
    """How arguments are handed to a function of torch."""

    BY_NAME = "by name"
    TENSORS_FIRST = "tensors by place, the rest by name"
    BY_PLACE = "in the order of the rule's parameters"


@dataclass(frozen=True)
class RecordedCall:
    """What the example ran below autograd; ``backward`` is None where it has no gradient.

    ``gradients``  the operands that got one; ``shapes`` those of the results.
    """

    forward: tuple[str, ...]
    backward: tuple[str, ...] | None
    gradients: frozenset[str]
    shapes: tuple[tuple[int, ...], ...] = ()


def called_example(rule: OpRule) -> tuple[Example | None, RecordedCall | None]:
    """The first example that torch takes, with what it ran; else the first one, and None."""
    tried = MOST_TRIED if rule.kind in _RUN else 0
    examples = examples_of(rule) if rule.kind is not Kind.CONTROL else iter(())
    first = next(examples, None)
    for example in itertools.islice(itertools.chain(filter(None, [first]), examples), tried):
        try:
            recorded = _recorded(rule, example)
        except AssertionError:  # torch was built without the device, and a copy to another one is no answer
            return first, None
        if recorded is not None:
            shapes = recorded.shapes[: len(example.labelling.results)] if _has_labelled_dims(example, recorded) else ()
            return replace(example, results=shapes, gradients=recorded.gradients), recorded
    return first, _recorded_plainly(rule) if rule.labels is None else None


def _recorded_plainly(rule: OpRule) -> RecordedCall | None:
    """A call of an operator of whose result no dims are known: what reads or makes tensors of any shape."""
    if rule.kind is Kind.CONTROL:
        return None
    names = [name.lstrip("~") for name in rule.parameters]
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in _functions(rule):
            for count, shape, further in itertools.product((1, 2, 0), ((), (6, 6)), _FURTHER_OF_MADE):
                made = {name: torch.ones(shape) for name in names[:count]}
                if len(made) == count:
                    with contextlib.suppress(*_UNSUITED):
                        return _run(function, rule, made, further, _Way.TENSORS_FIRST)
    return None


def call_sections(rule: OpRule, example: Example | None, recorded: RecordedCall | None) -> Iterator[str]:
    """The further parts of the page, as plain text."""
    if example is not None and recorded is not None:
        yield _costs(example, list(placements(rule, example)), recorded)
    yield _in_torch(rule, recorded)


def _costs(example: Example, lines: Sequence[RuleLine], recorded: RecordedCall) -> str:
    """What the placements leave pending, forward and backward, and what its all-reduce costs a rank."""
    rows = [(*example.names, "left to be summed", f"received by a rank, {DTYPE}")]
    for line in lines:
        if line.refused:
            continue
        owed = []
        for number, place in enumerate(line.results[: len(example.results)]):
            if place is P:
                owed.append((f"result {number}" if len(line.results) > 1 else "result", list(example.results[number])))
        for name, shape, place in zip(example.names, example.shapes, line.operands, strict=True):
            if place.backward_type() is P and name in recorded.gradients:
                owed.append((f"d {name}", list(shape)))
        told = [repr(place) for place in line.operands]
        for name, sizes in owed or [("nothing", [])]:
            rows.append((*told, name, _received(sizes) if owed else ""))
            told = [""] * len(told)
    told_rows = (f"  {row}" for row in columns(rows))
    return "\n".join([f"cost over {RANKS} ranks: the call itself moves nothing", *told_rows])


def _received(sizes: Sequence[int]) -> str:
    cost = cost_of("all_reduce", math.prod(sizes), RANKS, DTYPE)
    return f"{cost.bytes} B by an all_reduce of {list(sizes)}"


def _in_torch(rule: OpRule, recorded: RecordedCall | None) -> str:
    """The dispatch keys of the operator, and the operators below autograd that the example turns into."""
    lines = ["in torch, as it is installed"]
    for name in _aten_names(rule):
        keys = dispatch_keys(name)
        if keys:
            lines.append(f"  kernels    {name}: {', '.join(keys)}")
        if "CompositeImplicitAutograd" in keys:
            lines.append("             it has no gradient of its own: torch takes it apart before autograd")
    if recorded is None and rule.parameters:  # else there is no call with tensors
        lines.append("  operators  not shown: no call with tensors like these runs on a CPU")
    elif recorded is not None:
        lines.append(f"  forward    {', '.join(recorded.forward) or 'nothing below autograd'}")
        if recorded.backward is None:
            lines.append("  backward   no gradient")
        else:
            lines.append(f"  backward   {', '.join(recorded.backward) or 'hands the gradient on'}")
    return "\n".join(lines)


def _aten_names(rule: OpRule) -> list[str]:
    """The operator of aten with the overload that a call with tensors takes, if it has one."""
    names = [spelling.replace(".", "_") for spelling in (rule.op, *rule.spellings)]
    found = next((name for name in names if isinstance(getattr(torch.ops.aten, name, None), OpOverloadPacket)), None)
    if found is None:
        return []
    overloads = getattr(torch.ops.aten, found).overloads()
    preferred = next((one for one in ("Tensor", "default", "int", "dim") if one in overloads), overloads[0])
    return [f"aten::{found}" if preferred == "default" else f"aten::{found}.{preferred}"]


def _functions(rule: OpRule) -> Iterator[Callable[..., object]]:
    """What a program calls the operator, the most usual first."""
    for home in (torch.nn.functional, torch, torch.special, torch.Tensor, torch.ops.aten):
        for spelling in (rule.op, *rule.spellings, f"__{rule.op}__"):
            found: Any = home
            for part in spelling.split("."):
                found = getattr(found, part, None)
            if callable(found) and not isinstance(found, type):
                yield found


def _recorded(rule: OpRule, example: Example) -> RecordedCall | None:
    """The example called in every way that may suit the operator, until the results are as its labels say.

    None if no call does that. Extents of dims that windows or merges change are not those of the operands.
    """
    others = []
    known = call_of(rule)
    given = {name: _argument(value) for name, value in example.given.items()}
    wholes = dict.fromkeys(one & {*example.names} for one in _WHOLE) if known is None else [known.whole]
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in _functions(rule):
            for whole in wholes:
                for further in _FURTHER if known is None else [{}]:
                    for way in _Way if given or further else (_Way.BY_NAME, _Way.TENSORS_FIRST):
                        with contextlib.suppress(*_UNSUITED):  # another way to call it may do
                            operands = _operands(example, whole, frozenset() if known is None else known.masks)
                            found = _graded(function, rule, operands, {**given, **further}, way)
                            if _is_as_labelled(example, found):
                                return found
                            plain = not further and (_has_labelled_dims(example, found) or not _labels(example))
                            others += [found] if plain else []
    return next(iter(others), None)


def _labels(example: Example) -> list[str | None]:
    """Of all results; none where how long they are depends on values."""
    return [label for dims in example.labelling.results for label in dims]


def _has_labelled_dims(example: Example, found: RecordedCall) -> bool:
    """Every result has as many dims as labels."""
    dims = [len(one) for one in example.labelling.results]
    return dims == [len(shape) for shape in found.shapes[: len(dims)]]


def _is_as_labelled(example: Example, found: RecordedCall) -> bool:
    """Every dim of the results has the extent of its label."""
    sizes = example.sizes
    return _has_labelled_dims(example, found) and all(
        sizes.get(label, size) == size
        for dims, shape in zip(example.labelling.results, found.shapes, strict=False)
        for label, size in zip(dims, shape, strict=True)
        if label is not None
    )


def _argument(value: object) -> object:
    return torch.ones(value.shape) if isinstance(value, Shape) else value


def _operands(example: Example, whole: frozenset[str], masks: frozenset[str]) -> dict[str, torch.Tensor]:
    made: dict[str, torch.Tensor] = {}
    for name, shape in zip(example.names, example.shapes, strict=True):
        if name in whole:
            made[name] = torch.zeros(shape, dtype=torch.int64)
        elif name in masks:
            made[name] = torch.ones(shape, dtype=torch.bool)
        else:
            value = torch.rand(shape).add(0.5)
            if len(shape) > 1 and shape[-1] == shape[-2]:
                value += 8 * torch.eye(shape[-1])  # so that it can be inverted and has roots
            made[name] = value.requires_grad_()
    return made


def _graded(
    function: Callable[..., object],
    rule: OpRule,
    operands: Mapping[str, torch.Tensor],
    further: Mapping[str, object],
    way: _Way,
) -> RecordedCall:
    """The call with operands that want a gradient, or without if torch takes them so alone."""
    try:
        return _run(function, rule, operands, further, way)
    except RuntimeError as error:
        if not _has_no_derivative(error):
            raise
        return _run(function, rule, {name: leaf.detach() for name, leaf in operands.items()}, further, way)


def _run(
    function: Callable[..., object],
    rule: OpRule,
    operands: Mapping[str, torch.Tensor],
    further: Mapping[str, object],
    way: _Way,
) -> RecordedCall:
    arguments: dict[str, Any] = {}
    for name, leaf in operands.items():
        tensor = leaf.clone() if leaf.requires_grad else leaf  # a leaf could not be written into
        if is_listed(rule, name):
            arguments.setdefault(name.rstrip("0123456789"), []).append(tensor)
        else:
            arguments[name] = tensor
    with _Recorder() as forward:
        result = _called(function, rule, arguments, further, way)
    results = result if isinstance(result, (tuple, list)) else [result]
    shapes = tuple(tuple(one.shape) for one in results if isinstance(one, torch.Tensor))
    roots = [one for one in results if isinstance(one, torch.Tensor) and one.requires_grad]
    leaves = {name: tensor for name, tensor in operands.items() if tensor.requires_grad}
    if not roots:
        return RecordedCall(tuple(forward.names), None, frozenset(), shapes)
    ones = [torch.ones_like(one) for one in roots]
    with _Recorder() as backward:
        try:
            gradients = torch.autograd.grad(roots, list(leaves.values()), ones, allow_unused=True)
        except RuntimeError as error:
            if not _has_no_derivative(error):
                raise
            return RecordedCall(tuple(forward.names), None, frozenset(), shapes)
    got = frozenset(name for name, gradient in zip(leaves, gradients, strict=True) if gradient is not None)
    return RecordedCall(tuple(forward.names), tuple(name for name in backward.names if name != "detach"), got, shapes)


def _has_no_derivative(error: Exception) -> bool:
    """Torch says so when the call is made, or not before backward."""
    return "derivative for" in str(error) and "not implemented" in str(error)


def _called(
    function: Callable[..., object],
    rule: OpRule,
    arguments: Mapping[str, object],
    further: Mapping[str, object],
    way: _Way,
) -> object:
    if way is _Way.BY_NAME:
        return function(**arguments, **further)
    if way is _Way.TENSORS_FIRST:
        return function(*arguments.values(), **further)
    every = {**arguments, **further}
    names = [name.lstrip("*~") for name in rule.parameters]
    return function(*(every[name] for name in names if name in every))


class _Recorder(DispatchMode):  # type: ignore[no-untyped-call]
    """Within it, the names of operators as they reach the dispatcher below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self,
        func: TorchFunction,
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        self.names.append(func.__name__.removesuffix(".default"))
        return func(*args, **(kwargs or {}))
