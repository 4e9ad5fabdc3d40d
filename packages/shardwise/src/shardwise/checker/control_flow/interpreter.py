"""What do the higher-order operators compute? Plain Python, which gives the values that torch gives.

In eager mode torch compiles a function around each of them first, and no function mode can see into that. While a
program is checked they are run by these loops instead; gradients come from autograd as in any Python loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import COMPILERS_NOTES, HigherOrderOperator, tree_leaves, tree_map

Function = Callable[..., Any]


def run_cond(pred: object, true_fn: Function, false_fn: Function, operands: Sequence[object]) -> object:
    """The result of the branch that ``pred`` chooses."""
    return (true_fn if pred else false_fn)(*operands)


def run_while_loop(
    cond_fn: Function, body_fn: Function, carried_inputs: Sequence[object], additional_inputs: Sequence[object] = ()
) -> tuple[object, ...]:
    """The carried values when the condition fails, without the body's nesting."""
    carried = list(carried_inputs)
    while cond_fn(*carried, *additional_inputs):
        carried = tree_leaves(body_fn(*carried, *additional_inputs))
    return tuple(carried)


def run_scan(
    combine_fn: Function, init: Sequence[object], xs: Sequence[torch.Tensor], additional_inputs: Sequence[object] = ()
) -> tuple[object, object]:
    """The last carry, and the outputs stacked along a new dim 0, both nested as the function nests them."""
    carry: Any = list(init)
    outputs = []
    for at in range(len(xs[0])):
        carry, output = combine_fn(*tree_leaves(carry), *(x[at] for x in xs), *additional_inputs)
        outputs.append(output)
    return carry, stacked(outputs)


def run_associative_scan(
    combine_fn: Function, xs: Sequence[torch.Tensor], additional_inputs: Sequence[object] = ()
) -> list[torch.Tensor]:
    """Every partial result, stacked along dim 0; in order, so sums round otherwise than torch's tree of them."""
    results = [[x[0] for x in xs]]
    for at in range(1, len(xs[0])):
        results.append(tree_leaves(combine_fn(*results[-1], *(x[at] for x in xs), *additional_inputs)))
    return [torch.stack(each) for each in zip(*results, strict=True)]


def run_map(f: Function, xs: Sequence[torch.Tensor], pos_args: Arguments = ()) -> object:
    """The function of every slice, stacked along a new dim 0."""
    return stacked([f(*(x[at] for x in xs), *pos_args) for at in range(len(xs[0]))])


def stacked(results: Sequence[object]) -> object:
    """Results of one structure as one, every leaf stacked along a new dim 0."""
    leaves = iter([torch.stack(each) for each in zip(*map(tree_leaves, results), strict=True)])
    return tree_map(lambda _: next(leaves), results[0])


def without_notes(kwargs: Keywords) -> dict[str, object]:
    """The arguments of a higher-order operator that mean something when nothing is compiled."""
    return {name: value for name, value in kwargs.items() if name not in COMPILERS_NOTES}


RUNS: Mapping[str, Function] = {
    "cond": run_cond,
    "while_loop": run_while_loop,
    "scan": run_scan,
    "associative_scan": run_associative_scan,
    "map_impl": run_map,
}
"""By the name of the operator in ``torch.ops.higher_order``."""


class Interpreting(TorchFunctionMode):
    """Runs higher-order operators by these loops, also those inside others, and checks nothing."""

    def __torch_function__(
        self, func: TorchFunction, types: object, args: Arguments = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        run = RUNS.get(func.__name__) if isinstance(func, HigherOrderOperator) else None
        if run is None:
            return func(*args, **(kwargs or {}))
        with self:
            return run(*args, **without_notes(kwargs or {}))
