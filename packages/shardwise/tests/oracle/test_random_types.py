"""Are the rules of random operators true? Synchronised generators for equal values, distributions for shards."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise.interop.tensors.containers import tensors_in
from shardwise.op_rules.registry import all_rules
from shardwise.op_rules.schema import Kind
from shardwise.oracle.local_types import check_claim
from shardwise.oracle.random_types import is_random, refute_distribution, synchronised
from shardwise.types.placement import I, P, R, S, Shard, V
from shardwise_devtools.sweep.checker_answers import rulesets

torch.set_num_threads(1)


def numbers(*shape):
    return torch.linspace(0.1, 0.9, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)


X = (numbers(4, 5),)
IMAGE = (numbers(2, 2, 2, 3),)
CALLS = {
    "dropout": (lambda x: F.dropout(x, 0.4), X),
    "dropout1d": (lambda x: F.dropout1d(x, 0.4), (numbers(2, 3, 4),)),
    "dropout2d": (lambda x: F.dropout2d(x, 0.4), IMAGE),
    "dropout3d": (lambda x: F.dropout3d(x, 0.4), (numbers(2, 2, 2, 2, 2),)),
    "feature_dropout": (lambda x: torch.feature_dropout(x, 0.4, True), IMAGE),
    "alpha_dropout": (lambda x: F.alpha_dropout(x, 0.4, training=True), X),
    "feature_alpha_dropout": (lambda x: F.feature_alpha_dropout(x, 0.4, training=True), IMAGE),
    "torch.dropout": (lambda x: torch.dropout(x, 0.4, True), X),
    "native_dropout": (lambda x: torch.native_dropout(x, 0.4, True), X),
    "rrelu": (lambda x: F.rrelu(x - 0.5, training=True), X),
    "bernoulli": (torch.bernoulli, X),
    "poisson": (torch.poisson, X),
    "binomial": (lambda n, p: torch.binomial((n * 5).round(), p), (numbers(4, 5), numbers(4, 5))),
    "multinomial": (lambda x: torch.multinomial(x, 2), X),
    "normal": (torch.normal, (numbers(4, 5), numbers(4, 5))),
    "_standard_gamma": (torch._standard_gamma, X),
    "_sample_dirichlet": (torch._sample_dirichlet, X),
    "gumbel_softmax": (F.gumbel_softmax, X),
    "rand_like": (torch.rand_like, X),
    "randn_like": (torch.randn_like, X),
    "randint_like": (lambda x: torch.randint_like(x, 5), X),
    "uniform_": (lambda x: x.clone().uniform_(), X),
    "scaled_dot_product_attention": (
        functools.partial(F.scaled_dot_product_attention, dropout_p=0.4),
        (numbers(2, 2, 3, 2), numbers(2, 2, 4, 2), numbers(2, 2, 4, 2)),
    ),
    "fractional_max_pool2d": (
        lambda x: F.fractional_max_pool2d(x, 2, output_size=(3, 4)),
        (torch.sin(37 * numbers(2, 2, 7, 9)),),
    ),
}


def ask(fn, values, places, *, local, alike):
    """The rules' answer with generators that are seeded alike, or not."""
    with rulesets(dtensor=False) as ruleset:
        if not alike:
            return (ruleset.locally if local else ruleset.globally)(fn, values, places)

        def declared(*operands):
            with spmd.synchronised_rng("tp"):
                return fn(*operands)

        return (ruleset.locally if local else ruleset.globally)(declared, values, places)


def refute(fn, values, places, claims):
    """Forward only where the operator has no derivative."""
    try:
        return check_claim(fn, values, places, claims)
    except RuntimeError:
        return check_claim(lambda *given: [out.detach() for out in tensors_in(fn(*given))], values, places, claims)


@pytest.mark.parametrize("name", CALLS)
def test_equal_values_need_equal_numbers(name):
    fn, values = CALLS[name]
    assert is_random(fn, values)
    for place in (R, I):
        places = (place,) * len(values)
        apart = ask(fn, values, places, local=True, alike=False)
        assert isinstance(apart, str)
        assert apart.startswith("SW121")
        alike = ask(fn, values, places, local=True, alike=True)
        assert not isinstance(alike, str), alike
        assert set(alike) <= {R, I}
        assert refute(synchronised(fn, 5), values, places, alike) is None
        assert refute(fn, values, places, alike) is not None


@pytest.mark.parametrize("name", CALLS)
def test_no_claim_about_a_pending_sum_is_refuted_with_equal_numbers(name):
    fn, values = CALLS[name]
    for places in itertools.product((R, P), repeat=len(values)):
        answer = ask(fn, values, places, local=True, alike=True)
        if P in places and not isinstance(answer, str) and None not in answer:
            assert refute(synchronised(fn, 5), values, places, answer) is None, (places, answer)


def test_dropout_with_equal_masks_is_linear_and_is_known_to_be():
    fn, values = CALLS["dropout"]
    assert ask(fn, values, (P,), local=True, alike=True) == (P,)
    assert str(ask(fn, values, (P,), local=True, alike=False)).startswith("SW121")


@pytest.mark.parametrize("name", ["uniform_", "native_dropout"])
def test_what_the_numbers_refute_about_pending_sums_is_refused(name):
    fn, values = CALLS[name]
    assert refute(synchronised(fn, 5), values, (P,), P) is not None
    assert str(ask(fn, values, (P,), local=True, alike=True)).startswith("SW112")


@pytest.mark.parametrize("name", CALLS)
def test_varying_values_may_have_numbers_of_their_own(name):
    fn, values = CALLS[name]
    answer = ask(fn, values, (V,) * len(values), local=True, alike=False)
    assert not isinstance(answer, str), answer
    assert set(answer) == {V}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CALLS)
def test_shards_that_are_claimed_have_the_distribution_of_the_whole(name):
    fn, values = CALLS[name]
    options = [[R, *(S(dim) for dim, extent in enumerate(value.shape) if extent > 1)] for value in values]
    for places in itertools.product(*options):
        if set(places) == {R} or (len(values) > 1 and len(set(places)) > 1):
            continue
        answer = ask(fn, values, places, local=False, alike=False)
        if isinstance(answer, str):
            continue
        assert isinstance(answer[0], Shard), (places, answer)
        assert refute_distribution(fn, values, places, answer[0]) is None, (places, answer)


KNOWN = {"dropout": 2, "bernoulli": 2, "dropout2d": 2, "normal": 2, "rand_like": 2, "multinomial": 1, "rrelu": 2}


@pytest.mark.parametrize(("name", "count"), KNOWN.items())
def test_shards_that_draw_apart_are_known(name, count):
    fn, values = CALLS[name]
    dims = range(values[0].ndim)
    answers = [ask(fn, values, (S(dim),) * len(values), local=False, alike=False) for dim in dims]
    assert sum(not isinstance(answer, str) for answer in answers) == count


@pytest.mark.parametrize(
    ("name", "dim", "words"),
    [
        ("dropout2d", 2, "covariance"),
        ("feature_alpha_dropout", 3, "covariance"),
        ("multinomial", 1, "shape"),
        ("_sample_dirichlet", 1, "mean"),
        ("gumbel_softmax", 1, "mean"),
        ("alpha_dropout", 0, None),
        ("dropout", 1, None),
    ],
)
def test_a_planted_claim_about_shards_is_refuted_where_elements_are_drawn_together(name, dim, words):
    fn, values = CALLS[name]
    found = refute_distribution(fn, values, (S(dim),), S(dim))
    assert (found is None) if words is None else (found is not None and words in found)


def test_a_planted_claim_that_ignores_a_piece_is_refuted():
    assert "mean" in refute_distribution(lambda x: torch.bernoulli(x.flip(0)), X, (S(0),), S(0))
    assert "shape" in refute_distribution(torch.bernoulli, X, (R,), S(0))
    assert "fit together" in refute_distribution(torch.bernoulli, X, (S(0),), S(2))
    assert "split in some way" in refute_distribution(torch.bernoulli, X, (P,), S(0))


COVERED_ELSEWHERE = {
    "factories, whose numbers have no operand to be equal to": "rand randn randint randperm",
    "fills of memory, like uniform_": "normal_ random_ exponential_ cauchy_ geometric_ log_normal_ bernoulli_",
    "initialisers, which are fills": """
        kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ trunc_normal_ orthogonal_ sparse_
    """,
    "like fractional_max_pool2d": """
        fractional_max_pool3d fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices
    """,
    "an approximation whose error alone is random": "pca_lowrank svd_lowrank lobpcg",
    "other names of dropouts above": "torch.alpha_dropout torch.feature_alpha_dropout",
    "kernels behind scaled_dot_product_attention": """
        _scaled_dot_product_attention_math _scaled_dot_product_flash_attention
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention
        _scaled_dot_product_cudnn_attention
    """,
    "modules with dropout between layers, and deterministic without": """
        multi_head_attention_forward lstm gru rnn_tanh rnn_relu
    """,
}


def test_every_random_rule_is_tried_here_or_has_a_reason():
    listed = [name for names in COVERED_ELSEWHERE.values() for name in names.split()]
    random = {rule.op for rule in all_rules() if rule.kind is Kind.RANDOM}
    assert random - set(CALLS) == set(listed)
