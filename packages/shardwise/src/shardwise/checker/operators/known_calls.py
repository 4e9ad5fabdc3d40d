"""Verdicts that are known, by the key of the call: the one cache of all operator handlers, and what may enter it.

What a verdict depends on is in its key (``call/cache_key.py``). A refused call is judged again every time, so that it
is reported wherever it stands. A call that writes is known if it leaves its destination's type as it was; where a write
also depends on histories, because a gradient takes part in it as ``gradient_writes`` or ``local_norm`` describe, it is
judged every time.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.calls.tracing import anywhere
from shardwise.interop.tensors.tagging import Cell, Tag, type_of
from shardwise.interop.torch_call import TorchFunction
from shardwise.interop.torch_compat import base_of, same_memory, takes_gradient
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.op_rules.propagation.operand import Bound
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..call.arguments import COEFFICIENTS, Op, has_scalar
from ..call.cache_key import flat_arguments, gradient_bits, has_gradient_bits, key_of
from ..parts import buffer_filling as filling
from ..propagation.results import origin_of_result, tag_results
from ..state.numbers import TYPED_NUMBERS
from ..state.session import CheckSession
from ..state.tensor_classes import TENSORS
from ..writes.gradient_writes import OVERWRITING
from ..writes.local_norm import SCALING
from ..writes.shared_memory import is_part_of_parameter, own_part_of
from ..writes.write_destination import merge, without_what_is_not_known
from . import scale_lost

Tags = Sequence[Tag | None]
Key = tuple[Any, ...]

LIMIT = 4096
"""Calls kept per operator; global keys hold shapes and indices, which a program may vary without end."""


class CachedVerdict:
    """A cached answer. ``sources`` and ``reuse`` count the call's tensors: where each placement came from, and whose
    tag the result can carry on as it is. ``results`` and ``origins``: types and sources of each result, if they differ.
    """

    __slots__ = ("checked", "origins", "results", "reuse", "sources", "type")

    def __init__(
        self,
        type: TensorType,
        sources: tuple[int | None, ...],
        checked: bool,
        results: tuple[TensorType, ...] = (),
        origins: tuple[tuple[int | None, ...], ...] = (),
    ) -> None:
        self.checked = checked
        self.origins = origins
        self.type = type
        self.results = results
        self.sources = sources
        self.reuse = sources[0] if sources and len(set(sources)) == 1 else None

    def hand_on(self, session: CheckSession, result: object, args: Sequence[object], tags: Tags, is_view: bool) -> None:
        """Count the call and give its results their types; ``tags`` are those of the call's tensors."""
        if self.checked:
            session.checked += 1
        else:
            session.unchecked += 1
        origin = origin_of_result(self.sources, tags)
        origins = [origin_of_result(sources, tags) for sources in self.origins] if self.origins else ()
        tag_results(result, args, self.type, origin, is_view, self.results, origins)

    def hand_on_view(self, result: torch.Tensor, base: object, tags: Tags) -> bool:
        """Give the usual result of a checked call that makes a view its type; False for an unusual one."""
        if self.reuse != 0 or not self.checked or self.results or base.__class__ not in TENSORS:
            return False
        tag = tags[0]
        if tag is None:
            return False
        origin, root = tag.origin, base_of(result)
        if isinstance(origin, tuple) or result is base:
            return False
        if root is None:
            copied = not same_memory(result, base)  # type: ignore[arg-type]
            if not copied or (origin is not None and origin.gradient is not None):
                return False
            result._shardwise = Tag(self.type, origin)  # type: ignore[attr-defined]
            return True
        if root is not base and root is not base_of(base):  # type: ignore[arg-type]
            return False
        cell = tag.cell
        if cell is None:
            cell = Cell()
            base._shardwise = Tag(tag.type, origin, cell)  # type: ignore[attr-defined]
        result._shardwise = Tag(self.type, origin, cell)  # type: ignore[attr-defined]
        return True


class ScaleLosingVerdict(CachedVerdict):
    """The answer to calls that lose the scale of a gradient along ``axes``, if one takes part: each is noted."""

    __slots__ = ("axes",)

    def __init__(
        self, type: TensorType, sources: tuple[int | None, ...], checked: bool, axes: tuple[MeshAxis, ...]
    ) -> None:
        super().__init__(type, sources, checked, (type,), (sources,))  # results of its own take no shortcut
        self.axes = axes

    def hand_on(self, session: CheckSession, result: object, args: Sequence[object], tags: Tags, is_view: bool) -> None:
        """Few of these calls have a gradient: the others are handed on as ``ordinary`` does."""
        of_gradients = any(tag is not None and tag.origin is not None and gradient_origin(tag) for tag in tags)
        tag = None if self.reuse is None else tags[self.reuse]
        if of_gradients or tag is None or result.__class__ is not torch.Tensor or is_view or takes_gradient(result):
            tensors = [value for value in flat_arguments(args, {}) if isinstance(value, torch.Tensor)]
            lost = scale_lost.lost_by_tags(self.axes, tensors, tags)
            super().hand_on(session, result, args, tags, is_view)
            if lost:
                scale_lost.note(session, result, lost)
            return
        session.checked += self.checked
        session.unchecked += not self.checked
        result._shardwise = Tag(self.type, tag.origin)  # type: ignore[attr-defined]


SPLIT = CachedVerdict(UNTYPED, (), False)
"""Marks a key whose answer also depends on which operands can receive a gradient."""


def may_be_known(op: Op, outcome: Outcome, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """True if the outcome depends on nothing but the key of the call."""
    guarded = outcome.blockable and op.rule.guard is not None
    stepping = any(
        kwargs.get(name).__class__ in TYPED_NUMBERS for name in COEFFICIENTS
    )  # its sign and destination count
    unclear = outcome.elsewhere or outcome.by_value or guarded or stepping or _moves_positions(args, kwargs)
    return not (outcome.refusals or unclear or anywhere.blocks or has_scalar(args, kwargs))


def _moves_positions(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Integers meet a number that grows with the ranks: positions may be moved by it, and local keys have no dtypes."""
    flat = flat_arguments(args, kwargs)
    return any(value.__class__ in TYPED_NUMBERS for value in flat) and any(
        isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()) for value in flat
    )


def remember(
    verdicts: dict[Key, CachedVerdict],
    key: Key,
    op: Op,
    operands: Sequence[Bound],
    values: Sequence[object],
    outcome: Outcome,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> None:
    """Put an outcome under its key, if it may be known."""
    if not may_be_known(op, outcome, args, kwargs):
        return
    loses = scale_lost.may_be_lost(operands, outcome) if outcome.type.scale and not outcome.results else ()
    # A constant that requires grad is no constant, and R and I mix only where no gradient flows.
    constants = (operand.type.ground.is_constant for operand in operands if isinstance(operand.type, TensorType))
    by_gradient = outcome.grad_matters or any(constants)
    if by_gradient and not has_gradient_bits(key):
        verdicts[key] = SPLIT
        key = (*key, *gradient_bits(args, kwargs))
    if len(verdicts) >= LIMIT:
        verdicts.clear()
    tensors = [value for value in flat_arguments(args, kwargs) if value.__class__ in TENSORS]

    def counted(sources: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Operands as the tensors that they are among the arguments."""
        return tuple(
            None if at is None else next((n for n, tensor in enumerate(tensors) if tensor is values[at]), None)
            for at in sources
        )

    origins = tuple(map(counted, outcome.origins))
    if loses:
        verdicts[key] = ScaleLosingVerdict(outcome.type, counted(outcome.sources), outcome.checked, loses)
        return
    verdicts[key] = CachedVerdict(outcome.type, counted(outcome.sources), outcome.checked, outcome.results, origins)


class KnownWrites:
    """The calls of one operator that are known to leave the type of what they write into as it is.

    The destination is the first argument: a tensor, or a list of them.
    """

    __slots__ = ("_counts", "fills", "op", "overwrites", "scales")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.fills = op.name in filling.WRITES
        self.overwrites = op.name in OVERWRITING
        self.scales = op.name in SCALING
        self._counts: dict[Key, tuple[int, int]] = {}

    def key(
        self, session: CheckSession, args: Sequence[object], kwargs: Mapping[str, object], context: Key = ()
    ) -> Key | None:
        """The key of the call, with ``context``; None if it has to be judged."""
        if not args or kwargs.get("out") is not None:
            return None
        tags: list[Tag | None] = []
        key = key_of(session, args, kwargs, tags)
        if key is None:
            return None
        first = args[0]
        many = first if first.__class__ is list or first.__class__ is tuple else (first,)
        if any(tensor.__class__ not in TENSORS for tensor in many) or self._asks_histories(tags, len(many)):
            return None
        tag = tags[0]
        shared = tag is not None and tag.cell is not None
        if session.open_findings or (shared and is_part_of_parameter(session, many[0])):
            return None  # what is written may take a finding back, or must be made up for later
        if any(map(own_part_of, itertools.repeat(session), many, tags)):
            return None  # what it is a part of varies from here on
        if session.scale_lost and any(tag is not None and gradient_origin(tag) is not None for tag in tags):
            return None  # a step by hand lists where that was
        # A destination that requires grad keeps its type whether or not gradients are being recorded now.
        return (*key, *context, *[tensor.requires_grad for tensor in many], *gradient_bits(args, kwargs))

    def _asks_histories(self, tags: Tags, count: int) -> bool:
        """True if the types that are left depend on gradients that take part (``gradient_writes``, ``local_norm``)."""
        shared = any(tag is not None and tag.cell is not None for tag in tags[:count])
        if not (shared or self.overwrites or self.scales):
            return False
        for at, tag in enumerate(tags):
            if tag is None or gradient_origin(tag) is None:
                continue
            if shared or self.overwrites:
                return True
            if self.scales and at >= count and tag.current().varying_axes:
                return True
        return False

    def run(
        self,
        session: CheckSession,
        func: TorchFunction,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        key: Key | None,
    ) -> tuple[bool, object]:
        """True and the result, if the call is known."""
        counts = None if key is None else self._counts.get(key)
        if counts is None or anywhere.blocks:
            return False, None
        if self.fills:
            filling.note(self.op.name, args[0], args)
        result = func(*args, **kwargs)
        session.checked += counts[0]
        session.unchecked += counts[1]
        return True, result

    def keeps_types(self, outcome: Outcome, args: Sequence[Any], kwargs: Mapping[str, object]) -> bool:
        """True if the write, which has been judged and not made, leaves the type of the destination as it is."""
        if outcome.results or self.op.rule.view or not may_be_known(self.op, outcome, args, kwargs):
            return False
        if self.overwrites and outcome.type.ground is Ground.ZERO and type_of(args[0]).ground is Ground.ABSENT:
            return False  # whether it is all zeros from here on depends on what else is in its memory
        return leaves(args[0], outcome.type, self.op.name)

    def remember(self, key: Key, checked: int, unchecked: int) -> None:
        """The call of this key, which keeps all types, counts as so many checked and unchecked ones."""
        if len(self._counts) >= LIMIT:
            self._counts.clear()
        self._counts[key] = checked, unchecked


def leaves(destination: torch.Tensor, result: TensorType, op: str) -> bool:
    """True if a write of ``result`` by ``op`` leaves the type of ``destination`` as it is."""
    before = type_of(destination)
    after, conflicts = merge(before, result, destination, op)
    known = without_what_is_not_known(after, result) is after
    return after is before and known and not conflicts and after is not UNKNOWN_TYPE
