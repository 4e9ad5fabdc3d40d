"""Does the backward of a declared autograd function return gradients of the inputs? Its types are followed as it runs.

The declaration gives the types of inputs and outputs. Backward gets gradients of the outputs' duals, and what it
returns must be of the inputs' duals. Its body works on tensors that forward has saved and nobody has typed: they are
unknown, and where they enter, nothing is claimed. Of what happens inside only the collectives are judged, and pending
sums that are cut by a rank's number or meet what varies; how a kernel rounds or rearranges a gradient is its author's
business.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

import torch
from torch.overrides import TorchFunctionMode

from shardwise.interop.running.session import current
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import forward_class, tree_leaves
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..diagnosis.gradient_findings import wrong_backward
from ..gradients.gradient_hooks import checked_call, telling
from ..gradients.gradient_types import dual, is_gradient_of
from ..state.session import CheckSession

_DECLARED = "_shardwise_declared"
JUDGED = frozenset({"SW110", "SW201", "SW210", "SW605"})
"""Findings inside a backward that are told: those of its collectives, and pending sums that meet what varies."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The types of one call of ``apply``: of its arguments and of its results, in order; untyped where no tensor is."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]


def types_of(values: Iterable[object]) -> tuple[TensorType, ...]:
    """The type of each value; untyped for what is no tensor."""
    return tuple(type_of(value) if isinstance(value, torch.Tensor) else UNTYPED for value in values)


def remember(cls: type, inputs: tuple[TensorType, ...], results: object) -> None:
    """Note what a call of ``cls.apply`` was declared to be, on the node that will run its backward."""
    outputs = results if isinstance(results, tuple) else (results,)
    for output in outputs:
        node = output.grad_fn if isinstance(output, torch.Tensor) else None
        if node is not None and forward_class(node) is cls:
            setattr(node, _DECLARED, Declared(inputs, types_of(outputs)))
            return


def wrap_apply(plain: Callable[..., object]) -> Callable[..., object]:
    """What autograd calls to run the backward of a Python function."""

    @functools.wraps(plain)
    def apply(self: object, *gradients: object) -> object:
        declared, session = getattr(self, _DECLARED, None), current()
        if declared is None or not isinstance(session, CheckSession):
            return plain(self, *gradients)
        return _checked(
            session, forward_class(self) or type(self), declared, gradients, lambda: plain(self, *gradients)
        )

    return apply


def _checked(
    session: CheckSession, cls: type, declared: Declared, gradients: Sequence[object], run: Callable[[], object]
) -> object:
    def body() -> object:
        with Unknowns():
            return run()

    expected = [dual(type) for type in declared.outputs]
    result, found = checked_call(session, body, gradients, expected, judged=JUDGED)
    returned = result if isinstance(result, tuple) else (result,)
    for position, (gradient, own) in enumerate(zip(returned, declared.inputs, strict=False)):
        if isinstance(gradient, torch.Tensor) and own.ground is Ground.ABSENT and own.axes:
            with telling(session):
                _compare(session, cls, position, own, found(gradient), gradient)
    session.checked += 1
    return result


def _compare(
    session: CheckSession, cls: type, position: int, own: TensorType, found: TensorType, gradient: torch.Tensor
) -> None:
    if found.ground is not Ground.ABSENT:
        return
    expected = own.backward_type()
    for axis in expected.axes:
        want, got = expected.get(axis), found.get(axis)
        if axis in found and found.local.get(axis) is not None and not is_gradient_of(want, got):
            wrong_backward(session, cls, position, axis, own.get(axis), got, gradient)


class Unknowns(TorchFunctionMode):
    """While it is on, tensors that nobody has typed are unknown; afterwards they are untyped again."""

    def __init__(self) -> None:
        super().__init__()
        self._marked: list[tuple[torch.Tensor, Tag]] = []

    def __torch_function__(
        self,
        func: TorchFunction,
        types: object,
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> object:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor) and tag_of(value) is None and not is_dtensor(value):
                tag = Tag(UNKNOWN_TYPE)
                set_tag(value, tag)
                self._marked.append((value, tag))
        return func(*args, **(kwargs or {}))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        for tensor, tag in self._marked:
            if tag_of(tensor) is tag:
                set_tag(tensor, None)
