"""What the rules say about sharded operators that mix one dim and keep the shape, against the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from shardwise.op_rules.propagation.dim_labels import Call, Shape
from shardwise.op_rules.registry import lookup

from .global_ruleset import differences, shown
from .values import booleans, real

torch.set_num_threads(1)

CASES: list[tuple[str, Callable[..., Any]]] = [
    ("cumsum", lambda x: torch.cumsum(x, 1)),
    ("cumsum by keyword", lambda x: x.cumsum(dim=-1, dtype=torch.float64)),
    ("cumprod", lambda x: x.cumprod(0)),
    ("cummax", lambda x: x.cummax(1)),
    ("cummin", lambda x: torch.cummin(x, dim=0)),
    ("logcumsumexp", lambda x: torch.logcumsumexp(x, -1)),
    ("sort", lambda x: x.sort()),
    ("sort of a dim", lambda x: torch.sort(x, 1, True)),
    ("stable sort", lambda x: torch.sort(x, stable=True, dim=0)),
    ("argsort", lambda x: x.argsort(1)),
    ("argsort of the last dim", lambda x: torch.argsort(x, descending=True)),
    ("msort", lambda x: torch.msort(x)),
    ("topk", lambda x: x.topk(1)),
    ("topk of a dim", lambda x: torch.topk(x, 1, 1, largest=False)),
    ("softmax", lambda x: x.softmax(-1)),
    ("F.softmax", lambda x: F.softmax(x, dim=1)),
    ("log_softmax", lambda x: torch.log_softmax(x, 0)),
    ("softmin", lambda x: F.softmin(x, 1)),
    ("special.softmax", lambda x: torch.special.softmax(x, 1)),
    ("special.log_softmax", lambda x: torch.special.log_softmax(x, dim=1)),
    ("aten softmax", lambda x: torch.ops.aten._softmax(x, 1, False)),
    ("glu", lambda x: F.glu(x)),
    ("diff", lambda x: torch.diff(x)),
    ("second diff of a dim", lambda x: torch.diff(x, 2, 1)),
    ("renorm", lambda x: torch.renorm(x, 2, 0, 0.5)),
    ("renorm of the last dim", lambda x: x.renorm(2, -1, 0.5)),
    ("normalize", lambda x: F.normalize(x)),
    ("normalize a dim", lambda x: F.normalize(x, dim=-1, p=1.0)),
]


@pytest.mark.parametrize(("name", "fn"), CASES, ids=[name for name, _ in CASES])
def test_one_operand(name: str, fn: Callable[..., Any]) -> None:
    assert shown(differences(fn, real(4, 5, 4))) == []


@pytest.mark.parametrize("shape", [(4,), (4, 5), (4, 5, 3), (2, 4, 5, 3)])
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_softmax_chooses_a_dim_by_the_number_of_dims(shape: tuple[int, ...]) -> None:
    assert shown(differences(lambda x: F.softmax(x), real(*shape))) == []


@pytest.mark.parametrize("dims", [(), (0,), (0, 1)])
def test_gradient_along_some_dims(dims: tuple[int, ...]) -> None:
    assert shown(differences(lambda x: torch.gradient(x, **({"dim": dims} if dims else {})), real(9, 8, 2))) == []


def test_diff_with_ends() -> None:
    def fn(x: torch.Tensor, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        return torch.diff(x, dim=1, prepend=before, append=after)

    assert shown(differences(fn, real(4, 5), real(4, 2), real(4, 2))) == []


def test_masked_softmax_along_the_last_dim() -> None:
    def fn(x: torch.Tensor, mask: torch.Tensor) -> Any:
        return torch._masked_softmax(x, mask, 1)

    assert shown(differences(fn, real(4, 5), booleans(4, 5))) == []


def test_softmax_kernel_of_the_backward_pass() -> None:
    def fn(grad: torch.Tensor, output: torch.Tensor) -> Any:
        return torch._softmax_backward_data(grad.detach(), output.detach(), 1, torch.float64)

    assert shown(differences(fn, real(4, 5), real(4, 5))) == []


@pytest.mark.parametrize(
    ("op", "arguments", "mixed"),
    [
        ("gumbel_softmax", {"tau": 1, "dim": 0}, {"i0"}),
        ("gumbel_softmax", {"tau": 1}, {"i2"}),
        ("multinomial", {"prob": 2}, {"i2"}),
        ("_sample_dirichlet", {}, {"i2"}),
    ],
)
def test_what_is_drawn_together_is_not_sharded(op: str, arguments: dict[str, Any], mixed: set[str]) -> None:
    rule = lookup(op)
    assert rule is not None
    assert rule.labels is not None
    labelling = rule.labels(Call((Shape((4, 5, 3)),), arguments))
    assert labelling is not None
    assert set(labelling.fates) == mixed
    assert labelling.results[0][:2] == ("i0", "i1")
