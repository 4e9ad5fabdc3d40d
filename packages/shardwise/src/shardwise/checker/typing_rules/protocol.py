"""The protocol of ``spmd_typecheck``: how the typing rule of an ``autograd.Function`` is found and run.

Two shapes: a rule with keyword-only parameters returns the types of the results and is asked before the kernel runs;
a rule whose first parameter is positional receives the results and puts types on them. Either must look at every
tensor among forward's arguments and leave no result untyped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown
from shardwise.interop.autograd.forward_args import bind_forward_args, named_tensors
from shardwise.interop.autograd.function_declarations import METHOD
from shardwise.interop.running.session import current
from shardwise.interop.running.typing_rule_run import TypingRuleRun, running
from shardwise.interop.tensors.tagging import tag_of, type_of
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument
from shardwise.types.placement import V
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import TensorType

from . import operators as rule_operators

Shape = Literal["return", "imperative"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class TypingRuleCall:
    """One call of the rule of ``cls`` for forward's arguments ``args``: ``before`` the kernel and ``after`` it.

    ``local``   shard dims are not followed.
    ``strict``  operands must say something about every axis in play.
    """

    def __init__(self, cls: type, args: Sequence[object], *, local: bool = True, strict: bool = True) -> None:
        self.rule = _typing_rule(cls)
        self.shape = hook_shape(cls)
        self.kwargs = hook_kwargs(cls, args)
        bound = bind_forward_args(cls, args)
        self.run = TypingRuleRun(cls.__qualname__, named_tensors(bound), local=local, strict=strict)
        self.typed: Any = None

    def before(self) -> None:
        """Ask a rule that returns its types. Errors: what the rule raises, SW304 if it left an argument out."""
        if self.shape == "return":
            with running(self.run):
                self.typed = self.rule(**self.kwargs)
            self._check_coverage()

    def after(self, results: object) -> None:
        """Put types on the results. Errors: SW304 if one has none afterwards."""
        with running(self.run):
            if self.shape == "imperative":
                self.rule(results, **self.kwargs)
                self._check_coverage()
            elif self.typed is not None:
                rule_operators.output(results, self.typed)
            elif any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(results)):
                raise SpmdTypeError(
                    f"the rule of {self.run.owner} returns None, expected the type of each result",
                    code="SW304",
                    help=("return what a rules operator gives, e.g. return rules.einsum(...)",),
                )
        self._check_results(results)

    def _check_coverage(self) -> None:
        missing = self.run.unseen
        if missing:
            names = ", ".join(missing)
            raise SpmdTypeError(
                f"the rule of {self.run.owner} never looks at {names}, so a wrong type there would pass",
                code="SW304",
                help=(
                    f"rules.ignore({names}) if the result's type does not depend on it",
                    f"assert_type({missing[0]}, ...) or a rules operator if it does",
                ),
            )

    def _check_results(self, results: object) -> None:
        for index, result in enumerate(results if isinstance(results, (tuple, list)) else (results,)):
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor) and tag_of(leaf) is None:
                    raise SpmdTypeError(
                        f"the rule of {self.run.owner} leaves output {index} without a type",
                        code="SW304",
                        help=("rules.output(out, typed) or assert_type(out, ...) in the rule",),
                    )
                if isinstance(leaf, torch.Tensor) and not self.run.local:
                    self._check_placed(index, type_of(leaf))

    def _check_placed(self, index: int, type: TensorType) -> None:
        """In global mode what varies says which dim is sharded."""
        mesh = current_entry()
        for axis, place in zip(type.axes, type.placements, strict=True):
            local = mesh is not None and axis in mesh.local_axes
            if place is V and not local and partition_spec_get_shard(type.spec, axis) is None:
                raise SpmdTypeError(
                    f"the rule of {self.run.owner} says that output {index} varies over {axis!r}, but not which of its "
                    f"dims is sharded",
                    code="SW408",
                    help=(f"assert_type(out, {{{axis_argument(axis)}: S(0)}}) with the dim, in the rule",),
                )


def run_typecheck(cls: type, args: Sequence[object], results: object) -> None:
    """Run the rule of ``cls`` after a call of forward with ``args`` that gave ``results``, and type the results.

    Example:
        >>> class Scaled(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x, factor):
        ...         return x * factor
        ...     @staticmethod
        ...     def spmd_typecheck(*, x):
        ...         return rules.convert(x, "tp", src=R, dst=R)
        >>> with no_typecheck():
        ...     y = torch.ones(4) * 2
        >>> run_typecheck(Scaled, (assert_type(torch.ones(4), R), 2), y)
        >>> print(typeof(y))
        f32[4] {dp: R, tp: R}
    """
    session = current()
    local = True if session is None else bool(getattr(session, "local", True))
    call = TypingRuleCall(cls, args, local=local, strict=session is not None and session.strict)
    call.before()
    call.after(results)


def hook_shape(cls: type) -> Shape:
    """``"imperative"`` if the rule takes the results as its first, positional parameter, else ``"return"``.

    Example:
        >>> class Scaled(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x, factor):
        ...         return x * factor
        ...     @staticmethod
        ...     def spmd_typecheck(*, x):
        ...         return rules.convert(x, "tp", src=R, dst=R)
        >>> hook_shape(Scaled)
        'return'
    """
    parameters = list(inspect.signature(_typing_rule(cls)).parameters.values())
    for parameter in parameters[1:]:
        if parameter.kind in _POSITIONAL or parameter.kind is parameter.VAR_POSITIONAL:
            raise SpmdArgumentError(
                f"{cls.__qualname__}.{METHOD}: parameter {parameter.name!r} must be keyword-only; only the results may "
                f"be positional",
                code="SW304",
                help=(f"def {METHOD}(out, *, {parameter.name}, ...)",),
            )
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        raise SpmdArgumentError(f"{cls.__qualname__}.{METHOD} cannot take *{parameters[0].name}", code="SW304")
    return "imperative" if parameters and parameters[0].kind in _POSITIONAL else "return"


def hook_kwargs(cls: type, args: Sequence[object]) -> dict[str, object]:
    """Those of forward's arguments that the rule asks for by name.

    Errors: TypeError for a name that is no parameter of forward and has no default.
    Example:
        >>> class Scaled(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x, factor):
        ...         return x * factor
        ...     @staticmethod
        ...     def spmd_typecheck(*, x):
        ...         return rules.convert(x, "tp", src=R, dst=R)
        >>> hook_kwargs(Scaled, (1.5, 2))
        {'x': 1.5}
    """
    available = bind_forward_args(cls, args)
    parameters = list(inspect.signature(_typing_rule(cls)).parameters.values())
    wanted: dict[str, Any] = {}
    for parameter in parameters[1:] if hook_shape(cls) == "imperative" else parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            wanted = {**available, **wanted}
        elif parameter.name in available:
            wanted[parameter.name] = available[parameter.name]
        elif parameter.default is parameter.empty:
            raise SpmdArgumentError(
                f"{cls.__qualname__}.{METHOD} asks for {parameter.name!r}, which is no parameter of forward; available "
                f"are {', '.join(available) or 'none'}",
                code="SW304",
            )
    return wanted


def _typing_rule(cls: type) -> Callable[..., object]:
    if not isinstance(cls, type):
        raise SpmdArgumentError(f"expected an autograd.Function class, got {shown(cls)}", code="SW304")
    rule = getattr(cls, METHOD, None)
    if not callable(rule):
        raise SpmdArgumentError(f"{cls.__qualname__}.{METHOD} must be a static method, got {rule!r}", code="SW304")
    return rule  # type: ignore[no-any-return]
