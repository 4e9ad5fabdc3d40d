"""What a function declares at its boundary: the ``in_types`` and ``out_types`` of ``local_map`` and
``no_typecheck``, trees of types built like the arguments and the result.

A leaf is a dict from axes to types, an ``SpmdType``, a ``PartitionSpec``, a pair of a dict and a spec (or None), or
None where there is no tensor. Everything is decided before anything is changed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, attach
from shardwise.diagnostics.source import user_location, user_site
from shardwise.interop.annotations.annotating import asserted_type, is_spec
from shardwise.interop.annotations.asserting import commit
from shardwise.interop.annotations.refining import overrule, refine
from shardwise.interop.calls.located_call import LocatedCall
from shardwise.interop.fixes.pending_sums import reduced_at_return
from shardwise.interop.running.recording import declared
from shardwise.interop.running.session import Session
from shardwise.interop.tensors.tagging import Origin, set_type, type_of
from shardwise.interop.torch_compat import no_torch_function, tree_leaves, tree_match
from shardwise.types.infer_marker import Infer
from shardwise.types.spec import PartitionSpec
from shardwise.types.spmd_type import SpmdType
from shardwise.types.tensor_type import UNTYPED, TensorType


@dataclass(frozen=True)
class Claim:
    """One tensor at the boundary and the types that are claimed for it; ``path`` says which it is."""

    path: str
    tensor: torch.Tensor
    types: tuple[Any, ...]


class Contract:
    """The declared boundary of ``function``; ``kind`` is the decorator's name."""

    def __init__(self, kind: str, function: Callable[..., object], in_types: Any, out_types: object) -> None:
        self.kind = kind
        self.name = f"{kind}[{getattr(function, '__qualname__', type(function).__qualname__)}]"
        self.in_types = in_types
        self.out_types = out_types
        self.code: CodeType | None = getattr(function, "__code__", None)
        try:
            self.signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = None

    def enter(self, session: Session, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Check the arguments and add to their types what the declaration says; all of them or none."""
        if self.in_types is Infer:
            return
        try:
            steps = [(claim, *self._decided(claim)) for claim in self._inputs(tuple(args), kwargs)]
        except SpmdTypeError as error:
            self._report(session, error)
            return
        for claim, _, after in steps:
            commit(claim.tensor, after, self.kind)

    def leave(self, session: Session, result: object) -> None:
        """Check the result and give it the declared types, which are believed where the body says nothing."""
        session.trust(self.name, user_location())
        try:
            claims = list(self._aligned("out_types", "output", result, self.out_types))
        except SpmdTypeError as error:
            self._report(session, error)
            return
        decided = []
        for claim in claims:
            try:
                decided.append((claim, *self._decided(claim)))
            except SpmdTypeError as error:
                self._report(session, error)
                decided.append((claim, *self._believed(claim)))
        for claim, before, after in decided:
            if before is not after or not after.axes:
                set_type(claim.tensor, after, Origin(user_site(), f"declared by {self.name}"))
            declared(claim.tensor, f"result of {self.name}")

    def _inputs(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Iterator[Claim]:
        bound = self._bind(args, kwargs)
        if bound is None:
            yield from self._aligned("in_types", "input", args, self.in_types)
            self._check_covered(kwargs)
            return
        if isinstance(self.in_types, dict):
            yield from self._by_name(bound)
            return
        if isinstance(self.in_types, tuple) and len(self.in_types) > len(bound.args):
            given = set(bound.arguments)
            bound.apply_defaults()
            left_out = {name: value for name, value in bound.arguments.items() if name not in given}
        else:
            left_out = {}
        positional, rest = bound.args, dict(bound.kwargs)
        if len(positional) > len(args) and isinstance(self.in_types, tuple):
            # Arguments that were passed by keyword, or left out, need not be declared unless they are tensors.
            for name, value in list(bound.arguments.items())[len(self.in_types) : len(positional)]:
                if name not in left_out:
                    rest[name] = value
            positional = positional[: max(len(args), len(self.in_types))]
        yield from self._aligned("in_types", "input", positional, self.in_types)
        self._check_covered(rest)

    def _bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> inspect.BoundArguments | None:
        if self.signature is None:
            return None
        try:
            return self.signature.bind(*args, **kwargs)
        except TypeError:
            return None  # the call itself will say what is wrong with it

    def _by_name(self, bound: inspect.BoundArguments) -> Iterator[Claim]:
        """``in_types`` as a dict from parameter names: every argument can be declared, however it is passed."""
        unknown = [name for name in self.in_types if self.signature and name not in self.signature.parameters]
        if unknown:
            raise SpmdTypeError(
                f"{self.name}: in_types pytree structure does not match input: {unknown[0]!r} is no parameter; "
                f"in_types is a tuple with one entry per positional argument, or a dict from parameter names",
                code="SW140",
                help=(f"in_types=({self.in_types!r},)",) if len(bound.args) == 1 else (),
            )
        bound.apply_defaults()
        for name, types in self.in_types.items():
            yield from self._aligned("in_types", "input", bound.arguments[name], types, path=name)
        self._check_covered({k: v for k, v in bound.arguments.items() if k not in self.in_types})

    def _check_covered(self, arguments: Mapping[str, object]) -> None:
        for name, value in arguments.items():
            if any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value)):
                raise SpmdTypeError(
                    f"{self.name}: the argument {name!r} is a tensor, but in_types says nothing about it",
                    code="SW140",
                    help=(f'in_types={{..., "{name}": {{"tp": R}}}}, by parameter names', "in_types=Infer"),
                )

    def _aligned(self, kind: str, side: str, value: object, types: object, path: str = "") -> Iterator[Claim]:
        """The tensors in ``value`` with the types that stand in their places."""
        if types is Infer:
            raise self._infer_leaf(kind)
        try:
            leaves, claims = tree_match(value, types)
        except (ValueError, TypeError) as error:
            raise SpmdTypeError(
                f"{self.name}: {kind} pytree structure does not match {side}: {error}", code="SW140"
            ) from None
        for index, (leaf, claim) in enumerate(zip(leaves, claims, strict=True)):
            where = f"{side} {path or index}" if len(leaves) == 1 or not path else f"{side} {path}[{index}]"
            yield from self._leaf(kind, where, leaf, claim)

    def _leaf(self, kind: str, where: str, leaf: Any, claim: object) -> Iterator[Claim]:
        if claim is Infer:
            raise self._infer_leaf(kind)
        is_tensor = isinstance(leaf, torch.Tensor)
        if claim is None:
            if is_tensor:
                raise SpmdTypeError(f"{self.name}: {where} is a tensor, but {kind} says None there", code="SW140")
            return
        types = _types_of_leaf(claim)
        if types is None:
            raise SpmdArgumentError(
                f"{self.name}: {kind} has {claim!r} at {where}, which is no type; expected a dict from axes to types, "
                f"a PartitionSpec, a pair of both, or None",
                code="SW140",
            )
        if not is_tensor:
            raise SpmdTypeError(
                f"{self.name}: {where} is {type(leaf).__name__}, no tensor, but {kind} gives it the type {claim!r}",
                code="SW140",
                help=(f"None in {kind} at {where}",),
            )
        yield Claim(where, leaf, types)

    def _infer_leaf(self, kind: str) -> SpmdTypeError:
        return SpmdTypeError(
            f"{self.name}: {kind} contains Infer at a leaf",
            code="SW140",
            help=("in_types=Infer for all arguments at once",) if kind == "in_types" else ("out_types=({...}, ...)",),
        )

    def _decided(self, claim: Claim) -> tuple[TensorType, TensorType]:
        """The tensor's type now and what it will be. Errors: SW140 with the contradiction."""
        before = type_of(claim.tensor)
        with no_torch_function():
            ndim, gradient_free = claim.tensor.ndim, not claim.tensor.requires_grad
        asserted = UNTYPED
        try:
            asserted = asserted_type(claim.types, ndim)
            return before, refine(before, asserted, gradient_free=gradient_free, name=claim.path)
        except SpmdTypeError as error:
            refused = SpmdTypeError(f"{self.name}: {error.message}", code="SW140", help=error.help)
            located = LocatedCall(self.kind, [(claim.path, claim.tensor)])
            returned = self.code if claim.path.startswith("output") and error.code == "SW130" else None
            fixes = reduced_at_return(returned, error.axis, before, asserted)
            attach(refused, op=self.kind, location=located.location, operands=[located.operand(0)], fixes=fixes)
            raise refused from None

    def _believed(self, claim: Claim) -> tuple[TensorType, TensorType]:
        """What a run goes on with after a contradiction: the declaration, if it can be understood."""
        before = type_of(claim.tensor)
        try:
            return before, overrule(before, asserted_type(claim.types, claim.tensor.ndim))
        except SpmdTypeError:
            return before, before

    def _report(self, session: Session, error: SpmdTypeError) -> None:
        attach(error, op=self.kind)
        session.report(error)


def _types_of_leaf(claim: object) -> tuple[object, ...] | None:
    """The arguments that ``assert_type`` would take for this leaf; None if it is no leaf."""
    if isinstance(claim, (PartitionSpec, SpmdType)):
        return (claim,)
    if isinstance(claim, tuple) and len(claim) == 2 and isinstance(claim[0], Mapping):
        spec = claim[1]
        return claim if spec is None or is_spec(spec) else None
    if isinstance(claim, Mapping):
        return (claim,)
    return None
