"""An autograd function on simulated ranks: what its forward and its backward compute there, for chosen values.

Floating-point operands are float64 where the function takes that, and lie on the device of the program's; what is asked
and answered lies on the CPU. Only what the function itself does is seen: its backward is called as autograd would call
it, without the rest of a graph.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from shardwise.interop.autograd.forward_args import forward_parameters
from shardwise.interop.torch_compat import tree_leaves, tree_map
from shardwise.mesh.axis import MeshAxis

from .simulated_ranks.identity import KeptNumber, calls_ours, code_of, functions_behind, keeps_state, kept_numbers, told
from .simulated_ranks.replay import IssuedCollective, Replay, ReplayedRank

_METHODS = ("forward", "backward", "vjp", "setup_context")
_SEED = 7151
MOST_ELEMENTS = 1 << 21
"""A function of larger operands is not run."""

Values = Sequence[torch.Tensor]


class NotRun(Exception):
    """The function cannot be run on simulated ranks; says why."""


@dataclass(frozen=True)
class RankPoint:
    """What one rank came to: its results, and the gradients of the operands (None: the function gave none)."""

    results: tuple[torch.Tensor, ...]
    gradients: tuple[torch.Tensor | None, ...] = ()


@dataclass(frozen=True)
class FunctionObservation:
    """What all ranks came to, in rank order, and the collectives that this one issued in forward and in backward.

    ``asked``  the axes of the groups in which the function has asked for its rank.
    ``held``   its arguments that are no tensors, in which it may have left handles of collectives.
    """

    points: tuple[RankPoint, ...]
    forward: tuple[IssuedCollective, ...]
    backward: tuple[IssuedCollective, ...]
    asked: frozenset[MeshAxis]
    held: tuple[object, ...] = ()

    @property
    def issued(self) -> tuple[IssuedCollective, ...]:
        return self.forward + self.backward


class FunctionRuns:
    """Calls of ``cls.apply(*args)`` on simulated ranks, with other tensors in the places of its operands.

    ``operands``  positions in ``args`` of the floating-point tensors.
    ``differentiated``  those that need a gradient: all of them, unless it is set.
    ``dtype``     what they are made to be; None: what they are.
    ``complemented``  one other rank marks the rows that this one does not, as where each has some of all classes.
    ``unshared``  positions in ``args`` of masks and indices of which other ranks may have others: all may be marked.
    Errors: NotRun for arguments that cannot be had twice.
    """

    def __init__(
        self, cls: type[torch.autograd.Function], args: Sequence[object], apply: Callable[..., Any], rank: int
    ) -> None:
        self.cls, self.args, self.apply, self.rank = cls, list(args), apply, rank
        leaves = tree_leaves(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.operands = [at for at, value in enumerate(args) if _is_float(value)]
        if any(callable(leaf) and not isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise NotRun("an argument is a function")
        if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in tensors):
            raise NotRun("an argument is a tensor of another kind")
        if any(tensor.is_meta and not tensor.is_floating_point() for tensor in tensors):
            raise NotRun("an argument has no values")
        if sum(tensor.numel() for tensor in tensors) > MOST_ELEMENTS:
            raise NotRun("the operands are large")
        if any(
            _is_float(leaf) for at, value in enumerate(args) if at not in self.operands for leaf in tree_leaves(value)
        ):
            raise NotRun("a tensor is inside of another argument")
        self.functions = functions_behind(cls, leaves)
        if calls_ours(cls, self.functions):
            raise NotRun("it calls typed collectives")
        self.codes = [code for name in _METHODS if (code := code_of(cls, name)) is not None]
        if keeps_state(self.codes, self.functions):
            raise NotRun("it changes what outlives the call")
        names = self.argument_names()
        whole = [at for at, value in enumerate(args) if isinstance(value, int) and not isinstance(value, bool)]
        self.numbers = [
            *kept_numbers(self.functions),
            *(KeptNumber(names[at], args[at], functools.partial(self.args.__setitem__, at)) for at in whole),  # type: ignore[arg-type]
        ]
        self.dtype: torch.dtype | None = torch.float64
        self.differentiated = self.operands
        self.complemented = False
        self.unshared: frozenset[int] = frozenset()
        self._marking: int | None = None

    def marks_rows(self) -> bool:
        """Is there a mask that is true of some rows alone, or an index that is negative where it means nothing?"""
        return any(_is_marking(value, at in self.unshared) for at, value in enumerate(self.args))

    def shape(self, at: int) -> torch.Size:
        """Of the operand in place ``at``."""
        operand: Any = self.args[at]
        return operand.shape  # type: ignore[no-any-return]

    def observe(
        self,
        values: Callable[[int], Values],
        cotangents: Callable[[int, Sequence[torch.Tensor]], Values] | None,
        numbers: Callable[[int], Mapping[KeptNumber, int]] | None = None,
        ranks: Sequence[int] = (),
        *,
        alone: bool = False,
    ) -> FunctionObservation:
        """Run on ``ranks``, or on all that this one talks to.

        ``values``      what the operands hold on a rank.
        ``cotangents``  what backward is given there; None: it is not run.
        ``numbers``     what numbers from outside are on a rank; None: what they are in this process.
        ``alone``       every group is of one rank.
        Errors: NotRun, with what stopped it.
        """
        marks: dict[int, int] = {}
        held: list[object] = []

        def run(rank: int) -> RankPoint:
            torch.default_generator.manual_seed(_SEED)
            for number, own in (numbers(rank) if numbers is not None else {}).items():
                number.put(own)
            args = [self._fresh(value) for value in self.args]
            if self.complemented and rank != self.rank:
                self._marking = rank if self._marking is None else self._marking
                args = [
                    _marked_elsewhere(value, rank == self._marking)
                    if _is_marking(value, at in self.unshared)
                    else value
                    for at, value in enumerate(args)
                ]
            given = [
                value.to(self._device_of(at), self._dtype_of(at), copy=True)
                for at, value in zip(self.operands, values(rank), strict=True)
            ]
            held.append([value for value in args if not isinstance(value, torch.Tensor)])
            with torch.enable_grad():
                for at, value in zip(self.operands, given, strict=True):
                    # No leaf, so that it may be written into.
                    args[at] = value.requires_grad_(at in self.differentiated) * 1
                made = self.apply(*args)
            results = _floats(made)
            marks[rank] = replay.issued_now
            node = next((one.grad_fn for one in results if one.grad_fn is not None), None)
            kept = tuple(map(_answer, results))
            if cotangents is None or node is None:
                return RankPoint(kept)
            wanted = dict(zip(map(id, results), cotangents(rank, kept), strict=True))
            leaves = made if isinstance(made, tuple) else (made,)
            with torch.no_grad():
                back: Any = node.apply(*(_cotangent(leaf, wanted) for leaf in leaves))  # type: ignore[attr-defined]
            back = back if isinstance(back, tuple) else (back,)
            grads = [back[at] if at < len(back) else None for at in self.operands]
            return RankPoint(kept, tuple(None if grad is None else _answer(grad) for grad in grads))

        replay = Replay(run, self.rank, ranks, self.codes, alone=alone)
        try:
            with _undisturbed(), told(replay, self.functions) as asked:
                seen = replay.results()
        except Exception as error:
            raise NotRun(f"{type(error).__name__}: {error}") from None
        finally:
            for number in self.numbers:
                number.put(number.value)
        first: ReplayedRank[RankPoint] = seen[self.rank]
        mark = marks[self.rank]
        return FunctionObservation(
            tuple(seen[rank].result for rank in sorted(seen)),
            tuple(first.issued[:mark]),
            tuple(first.issued[mark:]),
            frozenset(asked),
            tuple(held),
        )

    def argument_names(self) -> list[str]:
        """What forward calls its positional arguments."""
        names = [one.name for one in forward_parameters(self.cls)]
        return [names[at] if at < len(names) else f"argument {at}" for at in range(len(self.args))]

    def _device_of(self, at: int) -> torch.device:
        operand: Any = self.args[at]
        return torch.device("cpu") if operand.is_meta else operand.device

    def _dtype_of(self, at: int) -> torch.dtype:
        operand: Any = self.args[at]
        return self.dtype or operand.dtype

    def _fresh(self, value: object) -> object:
        return tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else _own(leaf), value)


def _own(leaf: object) -> object:
    """A copy of an object of the program's classes, in which a function may leave what the next one waits for.

    Errors: NotRun where there can be none.
    """
    if not hasattr(leaf, "__dict__") or type(leaf).__module__.partition(".")[0] in ("torch", "builtins"):
        return leaf
    try:
        return copy.copy(leaf)
    except Exception as error:
        raise NotRun(f"an argument cannot be copied: {error}") from None


def _answer(x: torch.Tensor) -> torch.Tensor:
    return x.detach().to("cpu", copy=True)


def _cotangent(leaf: object, wanted: Mapping[int, torch.Tensor]) -> torch.Tensor | None:
    if not isinstance(leaf, torch.Tensor):
        return None
    given = wanted.get(id(leaf))
    return torch.zeros_like(leaf) if given is None else given.to(leaf.device)


def _is_marking(x: object, may_mark_all: bool) -> TypeGuard[torch.Tensor]:
    if not isinstance(x, torch.Tensor) or x.is_floating_point() or x.is_complex():
        return False
    marked = x if x.dtype is torch.bool else x >= 0
    return bool(marked.any()) and (not bool(marked.all()) or (may_mark_all and x.ndim > 0))


def _marked_elsewhere(value: torch.Tensor, the_rest: bool) -> torch.Tensor:
    """A mask or index that marks the rows which ``value`` does not, or none."""
    if value.dtype is torch.bool:
        return ~value if the_rest else torch.zeros_like(value)
    return torch.where(value < 0, 0 if the_rest else -1, -1).to(value.dtype)


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _floats(results: object) -> list[torch.Tensor]:
    leaves = results if isinstance(results, (tuple, list)) else (results,)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


@contextlib.contextmanager
def _undisturbed() -> Any:
    """Inside, what is drawn and printed is not the program's."""
    python = random.getstate()
    try:
        with torch.random.fork_rng(devices=()), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(python)
