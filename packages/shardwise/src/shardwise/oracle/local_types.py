"""Is a claimed result type true? Numeric ground truth for local types, on one axis, in one process.

Each operand's denoted value is dealt out to the ranks according to its placement, the operator runs once per rank, and
the results are read back at the claimed placement: equal on every rank for R and I, summing to the operator's result on
the denoted values for P. Then the duality claim: cotangents of the claimed placement's dual are sent back, and the
gradients that autograd computes per rank, read at each operand's dual, must be the gradient of the denoted function
computed on one device. Floating values
should be float64, which tells a small lie from rounding; coarser ones are compared as `rounding.py` says.
Source: docs/semantics.md sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shardwise.interop.tensors.containers import tensors_in
from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, R, V

from .rounding import addable, close, coarsest, same, total

Op = Callable[..., Any]
Tensors = tuple[torch.Tensor, ...]
Runs = list[tuple[Tensors, Tensors]]
"""Operands and results, rank by rank."""
Cotangents = dict[int, torch.Tensor]
"""By the number of the result."""

_SPLIT = "a result of pending sums depends on how the sums are split"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Where a claim and the numbers part.

    ``phase``  ``"forward"`` or ``"backward"``.
    ``which``  position of the result (forward) or of the operand (backward).
    ``ranks``  the ranks concerned: one, or all when a sum over ranks is wrong.
    ``index``  of the element that differs most; empty for a scalar or when no element can be named.
    """

    phase: str
    which: int
    ranks: tuple[int, ...]
    index: tuple[int, ...]
    reason: str

    def __str__(self) -> str:
        what = "result" if self.phase == "forward" else "gradient of operand"
        ranks = f"rank {self.ranks[0]}" if len(self.ranks) == 1 else f"the sum over ranks {list(self.ranks)}"
        return f"{self.phase}: {what} {self.which} on {ranks} at {list(self.index)}: {self.reason}"


def check_claim(
    fn: Op,
    values: Sequence[torch.Tensor],
    placements: Sequence[PerMeshAxisLocalSpmdType],
    claim: PerMeshAxisLocalSpmdType | Sequence[PerMeshAxisLocalSpmdType],
    *,
    size: int = 2,
    seed: int = 0,
) -> Disagreement | None:
    """The first disagreement between the claim that ``fn`` of ``placements`` is ``claim``, and the numbers.

    ``values`` are the operands' denoted values; a varying operand's are made from its value. Run it with two value
    sets, so that an accident does not count as a truth. Every tensor that ``fn`` returns has the claimed placement,
    or its own of several.
    """
    if len(values) != len(placements):
        raise ValueError(f"{len(values)} values but {len(placements)} placements")
    for place in (*placements, *([claim] if isinstance(claim, PerMeshAxisLocalSpmdType) else claim)):
        place.is_pending_sum("the oracle")  # raises for other kinds
    if claim is V and P in placements:
        return Disagreement("forward", 0, (0,), (), _SPLIT)
    if claim is P and V in placements:
        return Disagreement("forward", 0, (0,), (), "a varying operand is no term of a pending sum")
    # Its own stream: parts drawn like the values would be in proportion to them, which proves too little.
    generator = torch.Generator().manual_seed(seed + 7919)

    def run_all() -> Runs:
        dealt = [_deal(value, place, size, generator) for value, place in zip(values, placements, strict=True)]
        return [_run(fn, tuple(pieces[rank] for pieces in dealt)) for rank in range(size)]

    try:
        results = run_all()
        again = run_all() if P in placements else results
    except (RuntimeError, IndexError, ValueError) as error:
        return Disagreement("forward", 0, (0,), (), f"the operator fails on the ranks' parts: {error}")
    count = len(results[0][1])
    claims = [claim] * count if isinstance(claim, PerMeshAxisLocalSpmdType) else list(claim)
    if len(claims) != count:
        return Disagreement("forward", 0, (0,), (), f"{len(claims)} claims for {count} results")
    for which, (place, first, other) in enumerate(zip(claims, results[0][1], again[0][1], strict=True)):
        if place.is_varying and not same(first, other):
            return Disagreement("forward", which, (0,), (), _SPLIT)
    whole: Runs = []
    if set(claims) - {V}:
        whole = [_run(fn, tuple(leaf_of(value) for value in values))]
    rough = coarsest((*values, *results[0][1]))
    return _forward(results, whole, claims, rough) or _backward(results, whole, placements, claims, generator, rough)


def leaf_of(value: torch.Tensor) -> torch.Tensor:
    """A copy that gradients can be asked of."""
    leaf = value.detach().clone()
    return leaf.requires_grad_() if leaf.is_floating_point() or leaf.is_complex() else leaf


def _deal(
    value: torch.Tensor, place: PerMeshAxisLocalSpmdType, size: int, generator: torch.Generator
) -> list[torch.Tensor]:
    """The ranks' local tensors of an operand with this denoted value."""
    if place.is_equal:
        return [leaf_of(value) for _ in range(size)]
    if place.is_varying:
        return [leaf_of(_vary(value, rank)) for rank in range(size)]
    assert place.is_pending_sum("the oracle"), "a placement is equal, varying or pending"
    return [leaf_of(part) for part in addends(value, size, generator)]


def addends(value: torch.Tensor, size: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Random terms whose sum is ``value``. Errors: ValueError for a mask."""
    parts = [_noise(value, generator) for _ in range(size - 1)]
    return [*parts, value - sum(parts[1:], parts[0]) if parts else value]


def _vary(value: torch.Tensor, rank: int) -> torch.Tensor:
    """Another value of the same shape from the same domain: positive stays positive, an index stays an index."""
    if value.is_floating_point() or value.is_complex():
        return value * (1 + 0.125 * rank)
    return value.roll(rank, -1) if value.dim() else value


def _noise(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if value.dtype is torch.bool:
        raise ValueError("a mask cannot be a pending sum")
    if value.is_floating_point() or value.is_complex():
        return torch.randn(value.shape, dtype=value.dtype, generator=generator) + value / 2
    return torch.randint(-3, 4, value.shape, dtype=value.dtype, generator=generator)


def _run(fn: Op, leaves: Tensors) -> tuple[Tensors, Tensors]:
    return leaves, tensors_in(fn(*leaves))


def _forward(
    results: Runs, whole: Runs, claims: Sequence[PerMeshAxisLocalSpmdType], rough: torch.dtype | None
) -> Disagreement | None:
    everyone = tuple(range(len(results)))
    for which, (claim, first) in enumerate(zip(claims, results[0][1], strict=True)):
        outputs = [outs[which] for _, outs in results]
        if claim.is_equal:
            for rank, output in enumerate(outputs):
                if not same(first, output):
                    return _differs("forward", which, (rank,), first, output)
        elif claim.is_pending_sum("the oracle"):
            wanted = whole[0][1][which]
            if any(output.shape != wanted.shape for output in outputs):
                return Disagreement("forward", which, everyone, (), "the ranks' results have other shapes")
            if wanted.dtype is torch.bool:
                return Disagreement("forward", which, everyone, (), "a truth value is no pending sum")
            added = total(outputs)
            if not close(added, wanted, rough=rough):
                return _differs("forward", which, everyone, wanted, added)
    return None


def _backward(
    results: Runs,
    whole: Runs,
    placements: Sequence[PerMeshAxisLocalSpmdType],
    claims: Sequence[PerMeshAxisLocalSpmdType],
    generator: torch.Generator,
    rough: torch.dtype | None,
) -> Disagreement | None:
    """The duality claim: gradients read at the operands' duals are the gradient of the denoted function."""
    seeds = _cotangents(results, claims, generator)
    if not seeds[0]:
        return None
    per_rank = [_gradients(run, sent) for run, sent in zip(results, seeds, strict=True)]
    single = _denoted_gradients(results, whole, seeds, claims)
    everyone = tuple(range(len(results)))
    for which, place in enumerate(placements):
        wanted = single[which]
        if wanted is None or place.is_varying:  # a rank's own input has the rank's own gradient, whatever it is
            continue
        found = [gradient for each in per_rank if (gradient := each[which]) is not None]
        if place is R:
            added = total(found)
            if not close(added, wanted, rough=rough):
                return _differs("backward", which, everyone, wanted, added)
            continue
        for rank, gradient in enumerate(found):
            if not close(gradient, wanted, rough=rough):
                return _differs("backward", which, (rank,), wanted, gradient)
    return None


def _denoted_gradients(
    results: Runs, whole: Runs, seeds: Sequence[Cotangents], claims: Sequence[PerMeshAxisLocalSpmdType]
) -> list[torch.Tensor | None]:
    """The gradients of the function that the program denotes, on one device.

    Varying results are n functions, one per rank: an operand that they share has the sum of their gradients.
    """
    own = {which for which in seeds[0] if claims[which].is_varying}
    parts = [
        _gradients(run, {which: sent[which] for which in own}) for run, sent in zip(results, seeds, strict=True) if own
    ]
    if len(own) < len(seeds[0]):
        # The cotangent sent is the sum of the ranks' when it is partial (claim R), and the common value otherwise.
        sent = {
            which: torch.stack([each[which] for each in seeds]).sum(0) if claims[which] is R else seeds[0][which]
            for which in seeds[0]
            if which not in own
        }
        parts.append(_gradients(whole[0], sent))
    return [
        None if each[0] is None else torch.stack([part for part in each if part is not None]).sum(0)
        for each in zip(*parts, strict=True)
    ]


def _cotangents(
    results: Runs, claims: Sequence[PerMeshAxisLocalSpmdType], generator: torch.Generator
) -> list[Cotangents]:
    """Per rank, a cotangent for every differentiable result: equal for P and I, different for R and V."""
    common = {
        which: _random_like(output, generator)
        for which, output in enumerate(results[0][1])
        if output.requires_grad and claims[which] in (P, I)
    }
    return [
        {
            which: common[which] if which in common else _random_like(output, generator)
            for which, output in enumerate(outs)
            if output.requires_grad
        }
        for _, outs in results
    ]


def _gradients(run: tuple[Tensors, Tensors], sent: Cotangents) -> list[torch.Tensor | None]:
    leaves, outs = run
    return gradients(leaves, [outs[which] for which in sent], list(sent.values()))


def _random_like(output: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(output.shape, dtype=output.dtype, generator=generator)


def gradients(
    leaves: Tensors, outs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """What autograd finds for every leaf, None for one that takes no gradient."""
    outputs = [output for output in outs if output.requires_grad]
    inputs = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(
        torch.autograd.grad(
            outputs, inputs, list(cotangents), retain_graph=True, allow_unused=True, materialize_grads=True
        )
    )
    return [next(found).detach() if leaf.requires_grad else None for leaf in leaves]


def _differs(phase: str, which: int, ranks: tuple[int, ...], wanted: torch.Tensor, found: torch.Tensor) -> Disagreement:
    if wanted.shape != found.shape:
        return Disagreement(phase, which, ranks, (), f"shape {tuple(found.shape)}, expected {tuple(wanted.shape)}")
    wanted, found = addable(wanted), addable(found.to(wanted.dtype))
    apart = (found - wanted).abs() if wanted.dtype is not torch.bool else wanted ^ found
    worst = int(apart.nan_to_num(nan=torch.inf).argmax()) if apart.is_floating_point() else int(apart.int().argmax())
    index = tuple(int(position) for position in torch.unravel_index(torch.tensor(worst), wanted.shape))
    return Disagreement(phase, which, ranks, index, f"{found[index].item()}, expected {wanted[index].item()}")
