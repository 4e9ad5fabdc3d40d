"""Losses in global mode: what the rules say of every sharding is what the numbers say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from shardwise.op_rules.propagation.dim_labels import Call, Shape
from shardwise.op_rules.registry import lookup
from shardwise.types.placement import P, R, S

from .agreement import assert_agreement
from .global_ruleset import ask

D = torch.float64


def r(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=D)


def prob(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=D) * 0.8 + 0.1


def ids(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


def signs(*shape: int) -> torch.Tensor:
    return torch.randint(0, 2, shape).to(D) * 2 - 1


LOSSES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "l1": (F.l1_loss, lambda: (r(4, 5), r(4, 5))),
    "mse": (F.mse_loss, lambda: (r(4, 5), r(4, 5))),
    "mse weighted": (lambda a, b, w, **k: F.mse_loss(a, b, weight=w, **k), lambda: (r(4, 5), r(4, 5), prob(4, 5))),
    "smooth l1": (F.smooth_l1_loss, lambda: (r(4, 5), r(4, 5))),
    "huber": (F.huber_loss, lambda: (r(4, 5), r(4, 5))),
    "bce": (F.binary_cross_entropy, lambda: (prob(4, 5), prob(4, 5))),
    "bce weighted": (lambda a, b, w, **k: F.binary_cross_entropy(a, b, w.detach(), **k),
                     lambda: (prob(4, 5), prob(4, 5), prob(5))),
    "bce logits": (F.binary_cross_entropy_with_logits, lambda: (r(4, 5), prob(4, 5))),
    "bce logits positives": (
        lambda a, b, w, **k: F.binary_cross_entropy_with_logits(a, b, pos_weight=w.detach(), **k),
        lambda: (r(4, 5), prob(4, 5), prob(5)),
    ),
    "kl": (F.kl_div, lambda: (prob(4, 5).log(), prob(4, 5))),
    "kl log": (lambda a, b, **k: F.kl_div(a, b, log_target=True, **k), lambda: (r(4, 5), r(4, 5))),
    "poisson": (F.poisson_nll_loss, lambda: (r(4, 5), prob(4, 5))),
    "gaussian": (F.gaussian_nll_loss, lambda: (r(4, 5), r(4, 5), prob(4, 5))),
    "gaussian row": (F.gaussian_nll_loss, lambda: (r(4, 5), r(4, 5), prob(4))),
    "gaussian column": (F.gaussian_nll_loss, lambda: (r(4, 5), r(4, 5), prob(4, 1))),
    "gaussian number": (lambda a, b, **k: F.gaussian_nll_loss(a, b, 0.5, **k), lambda: (r(4, 5), r(4, 5))),
    "hinge": (F.hinge_embedding_loss, lambda: (r(4, 5), signs(4, 5))),
    "soft margin": (lambda a, b, **k: F.soft_margin_loss(a, b.detach(), **k), lambda: (r(4, 5), signs(4, 5))),
    "ranking": (F.margin_ranking_loss, lambda: (r(4), r(4), signs(4))),
    "cosine": (F.cosine_embedding_loss, lambda: (r(4, 5), r(4, 5), signs(4))),
    "multi margin": (F.multi_margin_loss, lambda: (r(4, 5), ids(5, 4))),
    "multi margin one": (F.multi_margin_loss, lambda: (r(5), ids(5))),
    "multi margin weighted": (lambda a, b, w, **k: F.multi_margin_loss(a, b, weight=w.detach(), **k),
                              lambda: (r(4, 5), ids(5, 4), prob(5))),
    "multilabel margin": (F.multilabel_margin_loss, lambda: (r(4, 5), ids(5, 4, 5))),
    "multilabel soft": (F.multilabel_soft_margin_loss, lambda: (r(4, 5), ids(2, 4, 5).to(D))),
    "multilabel soft weighted": (F.multilabel_soft_margin_loss, lambda: (r(4, 5), ids(2, 4, 5).to(D), prob(5))),
    "triplet": (F.triplet_margin_loss, lambda: (r(4, 5), r(4, 5), r(4, 5))),
    "triplet distance": (F.triplet_margin_with_distance_loss, lambda: (r(4, 5), r(4, 5), r(4, 5))),
    "nll": (F.nll_loss, lambda: (r(4, 5), ids(5, 4))),
    "nll weighted": (lambda a, b, w, **k: F.nll_loss(a, b, w.detach(), **k), lambda: (r(4, 5), ids(5, 4), prob(5))),
    "nll image": (F.nll_loss, lambda: (r(4, 5, 2), ids(5, 4, 2))),
    "cross entropy": (F.cross_entropy, lambda: (r(4, 5), ids(5, 4))),
    "cross entropy one": (F.cross_entropy, lambda: (r(5), ids(5))),
    "cross entropy weighted": (lambda a, b, w, **k: F.cross_entropy(a, b, w.detach(), **k),
                               lambda: (r(4, 5), ids(5, 4), prob(5))),
    "cross entropy sequence": (F.cross_entropy, lambda: (r(4, 5, 2), ids(5, 4, 2))),
    "cross entropy smoothed": (lambda a, b, **k: F.cross_entropy(a, b, label_smoothing=0.1, **k),
                               lambda: (r(4, 5), ids(5, 4))),
    "cross entropy probabilities": (F.cross_entropy, lambda: (r(4, 5), prob(4, 5))),
    "cross entropy square": (F.cross_entropy, lambda: (r(4, 4), ids(4, 4))),
    "linear cross entropy": (F.linear_cross_entropy, lambda: (r(4, 2), r(5, 2), ids(5, 4))),
    "ctc": (lambda p, t, a, b, **k: F.ctc_loss(p.log_softmax(2).detach() + 0 * p, t, a, b, **k),
            lambda: (r(5, 4, 5), ids(4, 4, 2) + 1, torch.full((4,), 5), torch.full((4,), 2))),
}  # fmt: skip


EXCEPT = ("SW110", "SW112", "SW114")
"""A pending weight of samples could pass in some losses; no row says that one is linear in its weights."""


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(8)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_placed_as_the_numbers_say(name: str, reduction: str) -> None:
    torch.manual_seed(0)
    fn, make = LOSSES[name]
    single = name.endswith("one") or reduction == "mean"
    assert_agreement(
        lambda *t: fn(*t, reduction=reduction), make(), at_least=1 if single else 2, except_for=EXCEPT, sizes=(2, 3)
    )


def test_batchmean_divides_by_this_ranks_samples_only_if_they_are_sharded() -> None:
    torch.manual_seed(0)
    assert_agreement(lambda p, q: F.kl_div(p, q, reduction="batchmean"), (prob(4, 5).log(), prob(4, 5)), at_least=2)


@pytest.mark.parametrize(("number", "wanted"), [(0, (S(0),)), (2, (P,))])
def test_aten_gives_the_reduction_as_a_number(number: int, wanted: Any) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.mse_loss(a, b, number)

    assert ask(fn, (r(2, 5), r(2, 5)), (S(0), S(0))) == wanted


@pytest.mark.parametrize(
    ("fn", "tensors", "placements", "words"),
    [
        (F.cross_entropy, (r(2, 5), ids(5, 2)), (S(1), R), "SW405"),
        (partial(F.cross_entropy, ignore_index=1), (r(2, 5), ids(5, 2)), (S(0), S(0)), "SW403"),
        (F.cross_entropy, (r(2, 5), ids(5, 2)), (S(0), R), "SW402"),
        (F.mse_loss, (r(2, 5), r(2, 5)), (S(0), S(1)), "SW401"),
    ],
)
def test_a_loss_that_no_shard_can_do_is_refused(fn: Any, tensors: Any, placements: Any, words: str) -> None:
    assert str(ask(fn, tensors, placements)).startswith(words)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    ("placements", "wanted"),
    [((S(0), S(0), S(0)), (P,)), ((S(0), S(0), R), "SW113"), ((R, R, S(0)), "SW113"), ((R, R, R), (R,))],
)
def test_a_regulariser_is_added_to_a_pending_loss_only_if_it_is_pending_too(placements: Any, wanted: Any) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(x, y, reduction="sum") + 0.1 * (w * w).sum()

    answer = ask(fn, (r(2, 5), r(2, 5), r(2, 3)), placements)
    assert answer == wanted or str(answer).startswith(str(wanted))
    assert_agreement(fn, (r(4, 5), r(4, 5), r(4, 3)), at_least=2, except_for=("SW402", "SW113"))


def test_a_norm_is_no_total() -> None:
    x = r(2, 5)
    assert ask(lambda x: torch.linalg.vector_norm(x), (x,), (S(0),)) == (P("norm"),)
    assert str(ask(lambda x: torch.linalg.vector_norm(x, 3), (x,), (S(0),))).startswith("SW40")


def test_refused_losses_name_the_way_out() -> None:
    rule = lookup("cross_entropy")
    assert rule is not None
    assert rule.labels is not None
    made = rule.labels(Call((Shape((2, 5), "input"), Shape((2,), "target")), {"reduction": "mean"}))
    assert made is not None
    assert "vocab-parallel" in made.why["c"]
    assert "global count" in made.why["d0"]
