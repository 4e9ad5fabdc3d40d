"""What does each rank see when a function and its rule run on a placement? Forward, backward, and the reference.

A function without process groups runs rank after rank; one with groups runs on all ranks of a world in this process.
The reference is the same function with groups of one rank. The rule is run by whoever calls (the ``RuleMaker``), for
the checker and the simulator do not know each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.running.session import paused, this_thread
from shardwise.interop.tensors.tagging import set_type, type_of
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.current import set_current_mesh
from shardwise.oracle.reassemble import deal
from shardwise.types.tensor_type import TensorType
from shardwise.worlds.world import InProcessWorld

from .subject import RuleSubject

_SEED = 20480
Gradients = dict[str, torch.Tensor | None]


class RuleCall(Protocol):
    """One call of a rule."""

    def before(self) -> None:
        """Asked before the function runs; raises SpmdTypeError to reject."""

    def after(self, results: object) -> None:
        """Puts types on the results; raises SpmdTypeError to reject."""


RuleMaker = Callable[[type, Sequence[Any]], RuleCall]


@dataclass(frozen=True)
class RuleOutcome:
    """What one rank saw for one placement.

    ``rejected``   why the rule does not admit it; ``failed``, ``backward_failed``: what the function raised.
    ``outputs``    local results, ``types`` their types; ``grads`` local gradients of the inputs, None without backward.
    ``reference``, ``reference_grads``  the same of the function on the global inputs.
    """

    rejected: SpmdTypeError | None = None
    failed: str = ""
    backward_failed: str = ""
    outputs: tuple[torch.Tensor, ...] = ()
    types: tuple[TensorType, ...] = ()
    grads: Gradients | None = None
    reference: tuple[torch.Tensor, ...] = ()
    reference_grads: Gradients | None = None


def outcomes_of(
    subject: RuleSubject, cases: Sequence[Mapping[str, object]], make_rule: RuleMaker, together: bool
) -> Iterator[list[RuleOutcome]]:
    """Per case, what each rank saw. ``together``: all ranks of a world, which can communicate.

    Errors: RankFailure, RankTimeout, Deadlock or CollectiveMismatch if the function stops the ranks of a world.
    """
    world_size = len(subject.grid.coordinates)
    if together:

        def program() -> list[RuleOutcome]:
            mesh = init_device_mesh("cpu", tuple(subject.sizes.values()), mesh_dim_names=tuple(subject.sizes))
            groups = {name: mesh.get_group(name) for name in subject.sizes}
            alone = dict.fromkeys(subject.sizes, dist.new_subgroups(group_size=1)[0])  # type: ignore[no-untyped-call]
            with set_current_mesh(mesh):
                return [_run_case(subject, case, dist.get_rank(), make_rule, groups, alone) for case in cases]

        ranks = InProcessWorld(world_size).run(program)
        yield from ([rank[at] for rank in ranks] for at in range(len(cases)))
        return
    session = this_thread()  # the functions run without the checker, if one is running on this thread
    with (
        paused(session) if session is not None else contextlib.nullcontext(),
        set_current_mesh(dict(subject.grid.axes)),
    ):
        for case in cases:
            yield [_run_case(subject, case, rank, make_rule, {}, {}) for rank in range(world_size)]


def _run_case(
    subject: RuleSubject,
    case: Mapping[str, object],
    rank: int,
    make_rule: RuleMaker,
    groups: Mapping[str, object],
    alone: Mapping[str, object],
) -> RuleOutcome:
    """Run ``case`` as ``rank``: with gradients for all inputs if the rule admits that, else as the caller gave them."""
    given = {name for name, tensor in subject.tensors.items() if tensor.requires_grad}
    every = {name for name, tensor in subject.tensors.items() if tensor.is_floating_point() or tensor.is_complex()}
    attempts = [given] if given or not subject.has_backward else [every, given]
    for differentiated in attempts:
        try:
            return _run_once(subject, case, rank, make_rule, groups, alone, differentiated)
        except SpmdTypeError as error:
            rejection = error
    return RuleOutcome(rejected=rejection.with_traceback(None))


def _run_once(
    subject: RuleSubject,
    case: Mapping[str, object],
    rank: int,
    make_rule: RuleMaker,
    groups: Mapping[str, object],
    alone: Mapping[str, object],
    differentiated: set[str],
) -> RuleOutcome:
    """Errors: SpmdTypeError if the rule rejects the case."""
    types = {name: subject.type_of(name, case) for name in subject.tensors}
    generator = torch.Generator().manual_seed(_SEED)
    local: dict[str, torch.Tensor] = {}
    for name, tensor in subject.tensors.items():
        piece = deal(tensor.detach(), types[name], subject.grid, generator)[rank]
        local[name] = piece.clone().requires_grad_(name in differentiated)
        set_type(local[name], types[name])
    args = subject.arguments(local, groups)
    rule = make_rule(subject.cls, args)
    rule.before()
    try:
        results = subject.cls.apply(*args)  # type: ignore[attr-defined]
    except Exception as error:
        # A rule that looks at the results has had no chance to reject; one that does not has admitted this.
        if getattr(rule, "shape", "return") == "imperative":
            raise SpmdTypeError(f"the function fails: {error}", code="SW305") from None
        return RuleOutcome(failed=f"{type(error).__name__}: {error}")
    rule.after(results)
    outputs = _tensors(results)
    whole = {n: t.detach().clone().requires_grad_(n in differentiated) for n, t in subject.tensors.items()}
    try:
        reference = _tensors(subject.cls.apply(*subject.arguments(whole, alone)))  # type: ignore[attr-defined]
    except Exception as error:
        return RuleOutcome(failed=f"on the global arguments, {type(error).__name__}: {error}")
    forward = RuleOutcome(
        outputs=tuple(output.detach() for output in outputs),
        types=tuple(type_of(output) for output in outputs),
        reference=tuple(output.detach() for output in reference),
    )
    sent = [at for at, output in enumerate(outputs) if output.requires_grad and at < len(reference)]
    if not sent or not subject.has_backward:
        return forward
    cotangents = [torch.randn(reference[at].shape, dtype=reference[at].dtype, generator=generator) for at in sent]
    try:
        dealt = [
            deal(cotangent, forward.types[at].backward_type(), subject.grid, generator)[rank]
            for at, cotangent in zip(sent, cotangents, strict=True)
        ]
        return replace(
            forward,
            grads=_gradients([outputs[at] for at in sent], local, dealt),
            reference_grads=_gradients([reference[at] for at in sent], whole, cotangents),
        )
    except Exception as error:
        return replace(forward, backward_failed=f"{type(error).__name__}: {error}")


def _tensors(results: object) -> tuple[torch.Tensor, ...]:
    return tuple(leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor))


def _gradients(
    outputs: Sequence[torch.Tensor], leaves: Mapping[str, torch.Tensor], cotangents: Sequence[torch.Tensor]
) -> Gradients:
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    found = torch.autograd.grad(list(outputs), list(wanted.values()), list(cotangents), allow_unused=True)
    return dict(zip(wanted, found, strict=True))
