"""Do the collectives and coercions mean what their types say? Every move, on all ranks, against the definitions.

For each case: the result denotes the value it should; the gradient, read at the dual type, denotes the true gradient
of the denotation; and the gradient's gradient denotes the move of its cotangent, because every move is linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from shardwise import (
    I,
    P,
    R,
    S,
    V,
    all_gather,
    all_reduce,
    all_to_all,
    convert,
    invariant_to_replicate,
    redistribute,
    reduce_scatter,
    reinterpret,
    shard,
    unshard,
)
from shardwise.op_rules.transitions import TRANSITIONS, reduced_source
from shardwise.worlds.world import InProcessWorld, ProcessWorld, run_processes

from .denotations import denote, dual, represent

pytestmark = pytest.mark.processes
WORLD_SIZES = (1, 2, 3)
WORLDS = (ProcessWorld, InProcessWorld)


@dataclass(frozen=True)
class Case:
    """A call, what its operand and result are, and the map from the operand's value to the result's."""

    call: Callable[..., Tensor]
    src: Any
    dst: Any
    options: dict[str, Any] = field(default_factory=dict)
    shape: Callable[[int], tuple[int, ...]] = lambda n: (2 * n, 3 * n)
    value: Callable[[Tensor, int], Tensor] = lambda x, n: x
    uneven: Callable[[int], tuple[int, ...]] | None = None

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self.options.items())
        extra = (", " + shown if shown else "") + (", uneven" if self.uneven else "")
        return f"{self.call.__name__}({self.src} -> {self.dst}{extra})"

    @property
    def has_gradient(self) -> bool:
        """No gradient flows through a maximum or a minimum over ranks."""
        return self.src not in ("P(max)", "P(min)")

    def sizes(self, n: int) -> tuple[int, ...] | None:
        return None if self.uneven is None else self.uneven(n)


def uneven(n: int) -> tuple[int, ...]:
    """3, 0, 1 and so on: sizes that differ, one of them zero."""
    return (3, 0, 1, 2)[:n]


def uneven_shape(dim: int) -> Callable[[int], tuple[int, ...]]:
    return lambda n: (sum(uneven(n)), 2) if dim == 0 else (2, sum(uneven(n)))


def one_entry_per_rank(dim: int) -> Callable[[int], tuple[int, ...]]:
    return lambda n: tuple([2, 4][:dim] + [n] + [2, 4][dim:])


def exchanged(split_dim: int, concat_dim: int) -> Callable[[Tensor, int], Tensor]:
    """V -> V of all_to_all, on the ranks' tensors stacked along dim 0."""
    return lambda x, n: torch.stack(
        [torch.stack([x[sender].select(split_dim, rank) for sender in range(n)], concat_dim) for rank in range(n)]
    )


def exchanged_pieces(split_dim: int, concat_dim: int) -> Callable[[Tensor, int], Tensor]:
    """The same with pieces in place of entries."""
    return lambda x, n: torch.stack(
        [torch.cat([x[sender].chunk(n, split_dim)[rank] for sender in range(n)], concat_dim) for rank in range(n)]
    )


def blocks_transposed(x: Tensor, n: int) -> Tensor:
    """S(0) -> S(0) of all_to_all: piece j of rank i becomes piece i of rank j."""
    return x.view(n, n, 2, 3).transpose(0, 1).reshape(-1, 3)


def summed_over(dim: int) -> Callable[[Tensor, int], Tensor]:
    return lambda x, n: x.sum(dim)


V0, V1, V2, S0, S1 = ("V", 0), ("V", 1), ("V", 2), ("S", 0), ("S", 1)
EXPERT = {"expert_mode": True}

CASES = [
    Case(all_reduce, "P", "R"),
    Case(all_reduce, "P", "I"),
    Case(all_reduce, "P", "R", shape=lambda n: ()),
    Case(all_reduce, V0, "R", shape=one_entry_per_rank(0), value=summed_over(0)),
    Case(all_reduce, "P", "R", {"op": "avg"}, value=lambda x, n: x / n),
    *[Case(all_reduce, f"P({kind})", dst) for kind in ("max", "min") for dst in "RI"],
    *[Case(all_reduce, f"P({kind})", "R", {"src": P, "op": kind}) for kind in ("max", "min")],
    Case(all_reduce, "P(max)", "R", {"op": "max", "inplace": True}),
    *[Case(reduce_scatter, f"P({kind})", ("S", dim)) for kind in ("max", "min") for dim in (0, 1)],
    *[Case(reduce_scatter, f"P({kind})", V0, {}, one_entry_per_rank(0)) for kind in ("max", "min")],
    Case(reduce_scatter, "P", S0, {"op": "avg"}, value=lambda x, n: x / n),
    *[Case(redistribute, f"P({kind})", dst) for kind in ("max", "min") for dst in ("R", S1)],
    Case(all_reduce, V0, "I", shape=one_entry_per_rank(0), value=summed_over(0)),
    *[
        Case(all_gather, ("V", dim), dst, {"gather_dim": given}, one_entry_per_rank(dim))
        for dim, given in ((0, 0), (1, 1), (2, 2), (2, -1), (0, -3))
        for dst in "RI"
    ],
    *[Case(all_gather, V0, dst, {}, lambda n: (n,)) for dst in "RI"],
    *[Case(all_gather, ("S", dim), dst) for dim in (0, 1) for dst in "RI"],
    *[Case(all_gather, ("S", d), dst, {}, uneven_shape(d), uneven=uneven) for d in (0, 1) for dst in "RI"],
    *[
        Case(reduce_scatter, "P", ("V", dim), {"scatter_dim": given}, one_entry_per_rank(dim))
        for dim, given in ((0, 0), (1, 1), (2, -1))
    ],
    Case(reduce_scatter, "P", V0, {}, lambda n: (n,)),
    *[Case(reduce_scatter, "P", ("S", dim)) for dim in (0, 1)],
    *[Case(reduce_scatter, "P", ("S", dim), {}, uneven_shape(dim), uneven=uneven) for dim in (0, 1)],
    Case(reduce_scatter, V0, S0, {}, lambda n: (n, 2 * n, 2), summed_over(0)),
    Case(reduce_scatter, V0, V0, {}, lambda n: (n, n, 2), summed_over(0)),
    *[
        Case(
            all_to_all, V0, V0, {"split_dim": split, "concat_dim": concat},
            lambda n, split=split: (n, *(2, 4)[: split % 3], n, *(2, 4)[split % 3 :]),
            exchanged(split % 3, concat % 3),
        )
        for split, concat in ((0, 0), (0, 2), (2, 0), (1, 2), (-1, -2))
    ],
    # Mixed forms have no denotation of their own: the ranks' tensors are compared as a list.
    Case(all_to_all, V0, V0, {"src": S(1), "concat_dim": 0}, lambda n: (n, 2, 2 * n), exchanged_pieces(1, 0)),
    Case(all_to_all, V0, V0, {"split_dim": 0, "dst": S(1)}, lambda n: (n, 2 * n, 2), exchanged_pieces(0, 1)),
    Case(all_to_all, S0, S1),
    Case(all_to_all, S1, S0),
    Case(all_to_all, ("S", 2), S0, {}, lambda n: (2 * n, 3, n)),
    Case(all_to_all, S0, S0, {}, lambda n: (n * n * 2, 3), blocks_transposed),
    *[Case(convert, src, V0, {}, one_entry_per_rank(0)) for src in "RI"],
    *[Case(convert, src, ("S", dim)) for src in "RI" for dim in (0, 1)],
    *[Case(convert, src, ("S", dim), {}, uneven_shape(dim), uneven=uneven) for src in "RI" for dim in (0, 1)],
    Case(convert, "R", "P"),
    Case(convert, "I", "P", EXPERT),
    Case(convert, "R", "I", EXPERT),
    Case(convert, "I", "R"),
    Case(convert, V0, "P", EXPERT, one_entry_per_rank(0)),
    Case(convert, S0, "P", EXPERT),
    Case(convert, S1, "P", EXPERT),
    Case(convert, S1, "P", EXPERT, uneven_shape(1), uneven=uneven),
    Case(reinterpret, "R", "I", EXPERT),
    Case(reinterpret, "I", "R", EXPERT),
    Case(reinterpret, "R", V0, EXPERT, lambda n: (3,), lambda x, n: torch.stack([x] * n)),
    Case(reinterpret, "R", "P", EXPERT, value=lambda x, n: n * x),
    Case(reinterpret, "I", V0, {}, lambda n: (3,), lambda x, n: torch.stack([x] * n)),
    Case(reinterpret, "I", "P", value=lambda x, n: n * x),
    Case(reinterpret, V0, "P", {}, one_entry_per_rank(0), summed_over(0)),
    Case(unshard, S1, "R"),
    Case(shard, "I", S1),
    Case(invariant_to_replicate, "I", "R"),
    *[
        Case(redistribute, src, dst)
        for src, dst in [
            (S0, S1), (S0, "R"), (S1, "I"), ("P", "R"), ("P", "I"), ("P", S0), ("R", "I"), ("I", "R"), ("R", S1),
            ("R", "P"), ("I", S0), ("I", "P"), (S1, "P"),
        ]
    ],
    Case(redistribute, S0, "I", {}, uneven_shape(0), uneven=uneven),
    Case(redistribute, "R", S0, {}, uneven_shape(0), uneven=uneven),
]  # fmt: skip


def typed(placement: Any) -> Any:
    if isinstance(placement, str):
        return {"R": R, "I": I, "P": P, "P(max)": P("max"), "P(min)": P("min")}[placement]
    return V if placement[0] == "V" else S(placement[1])


def options_of(case: Case, n: int) -> dict[str, Any]:
    options = dict(case.options)
    if case.call is not invariant_to_replicate:
        options = {"src": typed(case.src), "dst": typed(case.dst), **options}
    if case.uneven is not None:
        options["split_sizes"] = list(case.uneven(n))
    return options


def random(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs_of(case: Case, n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """The operand's value, the cotangent of the result's value, and a cotangent of the gradient's value."""
    x = random(case.shape(n), seed)
    return x, random(tuple(case.value(x, n).shape), seed + 1), random(tuple(x.shape), seed + 2)


def run_cases(cases: list[Case] = CASES) -> list[list[Tensor]]:
    rank, n = dist.get_rank(), dist.get_world_size()
    outputs = []
    for number, case in enumerate(cases):
        value, cotangent, second = inputs_of(case, n, 10 * number)
        sizes = case.sizes(n)
        x = represent(case.src, value, n, 1, sizes)[rank].clone()
        if not case.has_gradient:
            outputs.append([case.call(x, dist.group.WORLD, **options_of(case, n))])
            continue
        x.requires_grad_()
        c = represent(dual(case.dst), cotangent, n, 2, sizes)[rank].clone().requires_grad_()
        h = represent(case.src, second, n, 3, sizes)[rank]
        y = case.call(x, dist.group.WORLD, **options_of(case, n))
        (grad,) = torch.autograd.grad(y, x, c, create_graph=True)
        (twice,) = torch.autograd.grad(grad, c, h)
        outputs.append([y.detach(), grad.detach(), twice])
    return outputs


@cache
def outputs(world: Any, n: int) -> list[list[list[Tensor]]]:
    """For each case: results, gradients and second gradients, a list over ranks each."""
    by_rank = world(n).run(run_cases)
    return [[list(pieces) for pieces in zip(*case, strict=True)] for case in zip(*by_rank, strict=True)]


def true_gradient(case: Case, x: Tensor, cotangent: Tensor, n: int) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(case.value(x, n), x, cotangent)[0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("n", WORLD_SIZES)
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: str(CASES[number]))
def test_move_keeps_its_promise(number: int, n: int, world: Any):
    check(CASES[number], number, outputs(world, n)[number], n)


@pytest.mark.parametrize("n", WORLD_SIZES)
def test_ranks_in_one_process_get_what_processes_get(n: int):
    for case, ours, theirs in zip(CASES, outputs(InProcessWorld, n), outputs(ProcessWorld, n), strict=True):
        # Bit for bit, except that gloo takes sums of three and more in an order of its own.
        rounding = 0.0 if n <= 2 else 1e-14
        torch.testing.assert_close(ours, theirs, rtol=rounding, atol=rounding, msg=str(case))
        if case.dst in ("R", "I"):
            assert all(torch.equal(ours[0][0], x) for x in ours[0]), f"{case}: ranks differ"
        if case.call in (all_gather, all_to_all, convert, reinterpret):
            assert all(map(torch.equal, ours[0], theirs[0])), f"{case}: moving adds nothing up"


def check(case: Case, number: int, outcome: list[list[Tensor]], n: int) -> None:
    value, cotangent, second = inputs_of(case, n, 10 * number)
    torch.testing.assert_close(denote(case.dst, outcome[0]), case.value(value, n))
    if not case.has_gradient:
        return
    _, gradients, second_gradients = outcome
    torch.testing.assert_close(denote(dual(case.src), gradients), true_gradient(case, value, cotangent, n))
    torch.testing.assert_close(denote(case.dst, second_gradients), case.value(second, n))


def test_every_move_of_the_table_is_tried():
    calls = [(case.call.__name__, options_of(case, 2)) for case in CASES]
    tried = {
        (op, letter(reduced_source(given["src"], given.get("op", "sum"))), letter(given["dst"]))
        for op, given in calls
        if "src" in given
    }
    assert {key for key, move in TRANSITIONS.items() if not move.is_noop} <= tried


# The call does something else than the case claims: its result, or its gradient, is another one.
PLANTED = [
    Case(all_reduce, "P", "R", {"dst": I}),
    Case(all_reduce, "P", "I", {"dst": R}),
    Case(all_gather, S0, "R", {"dst": I}),
    Case(convert, "R", S0, {"src": I}),
    Case(convert, "I", S0, {"src": R}),
    Case(reinterpret, "R", "P", EXPERT),
    Case(reinterpret, "I", "R", {"src": V, "dst": P}),
]


def run_planted() -> list[list[Tensor]]:
    return run_cases(PLANTED)


def test_a_wrong_claim_is_refuted():
    by_rank = run_processes(run_planted, 2)
    for number, case in enumerate(PLANTED):
        pieces = [list(pieces) for pieces in zip(*(rank[number] for rank in by_rank), strict=True)]
        with pytest.raises(AssertionError):
            check(case, number, pieces, 2)


def uneven_exchange() -> list[Tensor]:
    """Rank r sends (r + 2 j) % 3 rows to rank j."""
    rank, n = dist.get_rank(), dist.get_world_size()
    sent = [(rank + 2 * other) % 3 for other in range(n)]
    received = [(other + 2 * rank) % 3 for other in range(n)]
    x = (100.0 * rank + torch.arange(sum(sent), dtype=torch.float64)).unsqueeze(1).requires_grad_()
    y = all_to_all(x, dist.group.WORLD, output_split_sizes=received, input_split_sizes=sent)
    c = (1000.0 * rank + torch.arange(sum(received), dtype=torch.float64)).unsqueeze(1).requires_grad_()
    (grad,) = torch.autograd.grad(y, x, c, create_graph=True)
    (twice,) = torch.autograd.grad(grad, c, x.detach())
    return [x.detach(), y.detach(), c.detach(), grad.detach(), twice]


def test_uneven_all_to_all_exchanges_rows_and_gradients_take_the_way_back():
    n = 3
    x, y, c, grad, twice = zip(*run_processes(uneven_exchange, n), strict=True)
    sent = [[(rank + 2 * other) % 3 for other in range(n)] for rank in range(n)]
    received = [[sent[other][rank] for other in range(n)] for rank in range(n)]
    for rank in range(n):
        expected = [x[other].split(sent[other])[rank] for other in range(n)]
        torch.testing.assert_close(y[rank], torch.cat(expected))
        torch.testing.assert_close(twice[rank], torch.cat(expected))
        back = [c[other].split(received[other])[rank] for other in range(n)]
        torch.testing.assert_close(grad[rank], torch.cat(back))


def letter(placement: Any) -> str:
    return "S" if repr(placement).startswith("S(") else str(placement)
