"""Does a hand-written rule tell the truth about its function? Numbers decide, forward and backward.

Global inputs are dealt out by a placement, the function runs on every rank, and its results, read at the types that the
rule derives, must be the function of the global inputs. Then cotangents are dealt out by the dual types, and the
gradients, read at the duals of the inputs' types, must be the gradients of the function of the global inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdArgumentError
from shardwise.mesh.current import set_current_mesh
from shardwise.oracle.reassemble import Grid, Unreadable, reassemble
from shardwise.types.tensor_type import TensorType
from shardwise.worlds.world import CollectiveMismatch, Deadlock, RankFailure, RankTimeout

from .placements import describe, enumerate_placements
from .runs import RuleMaker, RuleOutcome, outcomes_of
from .subject import RuleSubject


class RuleCheckError(AssertionError):
    """The numbers refute the rule, or there was nothing to check.

    Example:
        >>> issubclass(RuleCheckError, AssertionError)
        True
    """


@dataclass
class RuleCheckReport:
    """``checked``: placements that the rule admits and the numbers confirm. ``rejected``: the others, with the reason.

    ``forward_only``  those of ``checked`` for which gradients could not be compared, because the rule admits them only
                      for inputs that need none, or the function has no backward.

    Example:
        >>> RuleCheckReport()
        RuleCheckReport(checked=[], rejected=[], forward_only=[])
    """

    checked: list[Mapping[str, Any]] = field(default_factory=list)
    rejected: list[tuple[Mapping[str, Any], str]] = field(default_factory=list)
    forward_only: list[Mapping[str, Any]] = field(default_factory=list)


def check_rule(
    cls: type,
    args: Sequence[object],
    placements: Mapping[str, object] | None,
    make_rule: RuleMaker,
    *,
    mesh: Mapping[str, int] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    local_tensor_mode: bool = False,
) -> RuleCheckReport | None:
    """See ``shardwise.rulecheck.rulecheck``."""
    subject = RuleSubject(cls, args, placements, mesh)
    if placements is not None:
        subject.check_covered(placements)
    elif not subject.tensors:
        raise SpmdArgumentError(f"{cls.__qualname__} has no tensor among {args!r}: there is nothing to place")
    cases = [placements] if placements is not None else list(enumerate_placements(subject.tensors, subject.sizes))
    if subject.group_names and not local_tensor_mode:
        raise RuleCheckError(
            f"{cls.__qualname__} takes process groups ({', '.join(subject.group_names)}): "
            f"pass local_tensor_mode=True to run it on several ranks"
        )
    report = RuleCheckReport()
    try:
        results = list(outcomes_of(subject, cases, make_rule, together=local_tensor_mode))
    except (RankFailure, RankTimeout, Deadlock, CollectiveMismatch) as error:
        raise RuleCheckError(f"{cls.__qualname__} stops the ranks: {error}") from error
    for case, outcomes in zip(cases, results, strict=True):
        rejected = outcomes[0].rejected
        if rejected is not None:
            if placements is not None:
                raise rejected
            report.rejected.append((case, rejected.message))
            continue
        with set_current_mesh(dict(subject.grid.axes)):
            _judge(subject, case, outcomes, rtol, atol)
        report.checked.append(case)
        if outcomes[0].grads is None:
            report.forward_only.append(case)
    if placements is not None:
        return None
    if not report.checked:
        reasons = "\n".join(f"  {describe(case)}: {reason}" for case, reason in report.rejected)
        raise RuleCheckError(f"the rule of {cls.__qualname__} admits no placement, so nothing was checked\n{reasons}")
    return report


def _judge(
    subject: RuleSubject, case: Mapping[str, object], outcomes: Sequence[RuleOutcome], rtol: float, atol: float
) -> None:
    """Errors: RuleCheckError where the numbers part from the claim."""
    name = subject.cls.__qualname__
    where = f"with {describe(case)}"
    for rank, outcome in enumerate(outcomes):
        if outcome.failed or outcome.rejected is not None:
            raise RuleCheckError(
                f"the rule of {name} admits what the function cannot do {where}, on rank {rank}: "
                f"{outcome.failed or outcome.rejected}"
            )
    first = outcomes[0]
    if len(first.reference) != len(first.outputs):
        raise RuleCheckError(
            f"{name} gives {len(first.outputs)} results on a rank, {len(first.reference)} on the whole"
        )
    for at, wanted in enumerate(first.reference):
        pieces = [outcome.outputs[at] for outcome in outcomes]
        _compare(f"output {at} of {name}", first.types[at], pieces, wanted, subject.grid, where, rtol, atol, exact=True)
    for rank, outcome in enumerate(outcomes):
        if outcome.backward_failed:
            raise RuleCheckError(f"the backward of {name} fails {where}, on rank {rank}: {outcome.backward_failed}")
    if first.grads is None or first.reference_grads is None:
        return
    duals = {argument: subject.type_of(argument, case).backward_type() for argument in first.grads}
    for argument, wanted_grad in first.reference_grads.items():
        found = [None if outcome.grads is None else outcome.grads[argument] for outcome in outcomes]
        if wanted_grad is None and all(grad is None for grad in found):
            continue
        if wanted_grad is None or any(grad is None for grad in found):
            raise RuleCheckError(
                f"the gradient of {argument} in {name} is None {where}, but not on every rank and the whole"
            )
        what = f"the gradient of {argument} in {name}"
        pieces = [grad for grad in found if grad is not None]
        _compare(what, duals[argument], pieces, wanted_grad, subject.grid, where, rtol, atol, exact=False)


def _compare(
    what: str,
    claim: TensorType,
    pieces: Sequence[torch.Tensor],
    wanted: torch.Tensor,
    grid: Grid,
    where: str,
    rtol: float,
    atol: float,
    *,
    exact: bool,
) -> None:
    try:
        scale = float(wanted.abs().max()) if wanted.numel() else 0.0
        found = reassemble(pieces, claim, grid, tolerance=0.0 if exact else atol + rtol * scale)
    except Unreadable as error:
        raise RuleCheckError(f"{what} {where}: {error}") from None
    if found.shape != wanted.shape:
        raise RuleCheckError(
            f"{what} {where}: read as {claim!r} it has shape {tuple(found.shape)}, expected {tuple(wanted.shape)}"
        )
    if not torch.allclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True):
        apart = float((found.to(torch.float64) - wanted.to(torch.float64)).abs().max())
        raise RuleCheckError(f"{what} {where}: read as {claim!r} it is off by up to {apart:.3g}")
