"""What the rules say about sharded operators that work element by element, against the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from shardwise.op_rules.propagation.dim_labels import Call, Shape
from shardwise.op_rules.registry import lookup

from .global_ruleset import differences, shown
from .values import booleans, complexes, integers, positive, real, unit

torch.set_num_threads(1)

X = real(4, 5)
_UNARY = """
    exp exp2 expm1 sin cos tan sinh cosh tanh asinh atan sinc erf erfc sigmoid relu selu ceil floor round trunc frac
    sign sgn abs neg positive square deg2rad rad2deg isnan isfinite isinf isposinf isneginf isreal signbit logical_not
    clone detach special.i0e special.i1 special.ndtr special.erfcx special.bessel_j0 special.entr angle
    real conj conj_physical resolve_conj
"""
_POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal digamma lgamma special.log_ndtr special.bessel_y0 i0"
_UNIT = "asin acos atanh logit erfinv special.ndtri special.logit"
_ACTIVATIONS = """
    relu relu6 elu selu celu gelu silu mish leaky_relu logsigmoid softplus softsign softshrink hardshrink tanhshrink
    hardsigmoid hardswish hardtanh
"""
_BINARY = """
    add sub mul div true_divide maximum minimum fmax fmin atan2 hypot copysign logaddexp logaddexp2 fmod
    remainder floor_divide eq ne lt le gt ge isclose logical_and logical_or logical_xor ldexp rsub
"""
_BITS = "bitwise_and bitwise_or bitwise_xor gcd lcm bitwise_right_shift"


def _named(names: str) -> list[tuple[str, Callable[..., Any]]]:
    found = []
    for name in names.split():
        fn: Any = torch
        for part in name.split("."):
            fn = getattr(fn, part)
        found.append((name, fn))
    return found


UNARY = [
    *[(name, fn, (X,)) for name, fn in _named(_UNARY)],
    *[(name, fn, (positive(4, 5),)) for name, fn in _named(_POSITIVE)],
    *[(name, fn, (unit(4, 5),)) for name, fn in _named(_UNIT)],
    *[(f"F.{name}", getattr(F, name), (X,)) for name in _ACTIVATIONS.split()],
]
OTHER: list[tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]] = [
    ("nan_to_num", lambda x: torch.nan_to_num(x.log()), (X,)),
    ("heaviside", lambda x, y: torch.heaviside(x.relu().detach(), y.detach()), (X, positive(5))),
    ("nextafter", lambda x, y: torch.nextafter(x, y) > x, (X, real(5))),
    ("clamp", lambda x: x.clamp(-0.5, 0.5), (X,)),
    ("clamp by tensors", lambda x, low, high: torch.clamp(x, low, max=high), (X, -unit(5), unit(4, 5))),
    ("pow of a number", lambda x: 2.0**x, (X,)),
    ("pow by a number", lambda x: x**2, (X,)),
    ("float_power", lambda x, y: torch.float_power(x, y), (positive(4, 5), unit(5))),
    ("div, rounded", lambda x, y: torch.div(x, y, rounding_mode="floor"), (X, positive(4, 5))),
    ("number minus tensor", lambda x: 1 - x, (X,)),
    ("number over tensor", lambda x: 1 / x, (positive(4, 5),)),
    ("polygamma", lambda x: torch.polygamma(1, x), (positive(4, 5),)),
    ("mvlgamma", lambda x: torch.mvlgamma(x + 2, 2), (positive(4, 5),)),
    ("xlogy", torch.xlogy, (X, positive(5))),
    ("special.zeta", lambda x, y: torch.special.zeta(x + 2, y.detach()), (positive(4, 5).detach(), positive(5))),
    ("special.xlog1py", torch.special.xlog1py, (X, positive(4, 5))),
    ("special.gammainc", lambda a, x: torch.special.gammainc(a.detach(), x), (positive(4, 5), positive(4, 5))),
    ("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=2.0), (X, real(5), real(4, 5))),
    ("addcdiv", torch.addcdiv, (X, real(4, 5), positive(5))),
    ("lerp", lambda x, y: torch.lerp(x, y, 0.3), (X, real(4, 5))),
    ("lerp by a tensor", torch.lerp, (X, real(4, 5), unit(5))),
    ("where", torch.where, (booleans(4, 5), X, real(5))),
    ("where with a number", lambda m, x: torch.where(m, x, 0.0), (booleans(4, 5), X)),
    ("Tensor.where", lambda x, m, y: x.where(m, y), (X, booleans(5), real(4, 5))),
    ("masked_fill", lambda x, m: x.masked_fill(m, 0.0), (X, booleans(4, 5))),
    ("masked_fill with another value", lambda x, m: x.masked_fill(m, -1.0), (X, booleans(5))),
    ("masked_scatter", lambda x, m, s: x.masked_scatter(m, s), (X, booleans(4, 5), real(20))),
    ("complex", torch.complex, (X, real(4, 5))),
    ("polar", torch.polar, (positive(4, 5), X)),
    ("frexp", lambda x: torch.frexp(x.detach()), (X,)),
    ("isin", lambda x, y: torch.isin(x, y), (integers(6, 4, 5), integers(6, 4))),
    ("isin of a number", lambda y: torch.isin(3, y), (integers(6, 4),)),
    ("prelu", F.prelu, (real(4, 5, 2), real(5))),
    ("prelu with one weight", F.prelu, (real(4, 5), real(1))),
    ("threshold", lambda x: F.threshold(x, 0.1, 2.0), (X,)),
    ("dropout in evaluation", lambda x: F.dropout(x, 0.5, training=False), (X,)),
    ("dropout of nothing", lambda x: F.dropout(x, 0.0), (X,)),
    ("dropout2d in evaluation", lambda x: F.dropout2d(x, 0.5, False), (real(2, 4, 3, 5),)),
    ("rrelu in evaluation", lambda x: F.rrelu(x, 0.1, 0.3), (X,)),
    ("double", lambda x: x.double(), (X,)),
    ("to a dtype", lambda x: x.to(torch.complex128), (X,)),
    ("to another's dtype", lambda x: x.to(torch.zeros(3, dtype=torch.complex128)), (X,)),
    ("bool", lambda x: (x > 0).bool(), (X,)),
    ("contiguous", lambda x: x.t().contiguous(), (X,)),
    ("in place", lambda x, y: x.clone().add_(y), (X, real(5))),
    ("relu_", lambda x: x.clone().relu_(), (X,)),
    ("special.round", lambda x: torch.special.round(x, decimals=1), (X,)),
]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "fn", "tensors"), [*UNARY, *OTHER], ids=[case[0] for case in [*UNARY, *OTHER]])
def test_element_by_element(name: str, fn: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> None:
    assert shown(differences(fn, *tensors)) == []


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "fn"), _named(_BINARY), ids=_BINARY.split())
def test_two_operands_are_broadcast(name: str, fn: Callable[..., Any]) -> None:
    assert shown(differences(fn, real(4, 5), positive(5))) == []


@pytest.mark.parametrize(("name", "fn"), _named(_BITS), ids=_BITS.split())
def test_bits(name: str, fn: Callable[..., Any]) -> None:
    assert shown(differences(fn, integers(9, 4, 5), integers(9, 4, 1))) == []


def test_a_scale_for_each_channel() -> None:
    def fn(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        if x.shape[1] != len(scale):
            raise ValueError("sizes")
        zero = torch.zeros(len(scale), dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(x, scale.detach(), zero, 1, 0, 255)

    assert shown(differences(fn, real(4, 5).float(), unit(5).float())) == []


def test_a_shifted_sum_is_not_worth_a_linear_law() -> None:
    assert shown(differences(torch.bitwise_left_shift, integers(9, 4, 5), integers(9, 4, 1)), "P, R -> P") == []


@pytest.mark.parametrize("fn", [torch.real, torch.imag, torch.conj, torch.angle, torch.abs, torch.exp])
def test_complex_numbers(fn: Callable[..., Any]) -> None:
    assert shown(differences(fn, complexes(4, 5))) == []


@pytest.mark.parametrize("shapes", [((2, 3), (1, 3)), ((1, 3), (2, 1)), ((2, 3), ()), ((2, 1, 3), (3, 1))])
def test_an_operand_of_size_one_serves_all_shards(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    assert shown(differences(torch.mul, real(*shapes[0]), positive(*shapes[1]))) == []


@pytest.mark.parametrize("shape", [(3,), (4, 3), ()])
def test_copies_take_the_shape_of_their_destination(shape: tuple[int, ...]) -> None:
    def fn(source: torch.Tensor) -> torch.Tensor:
        into = torch.empty((4, source.shape[-1]) if source.ndim == 1 else source.shape, dtype=source.dtype)
        return into.copy_(source)

    assert shown(differences(fn, real(*shape))) == []


@pytest.mark.parametrize(
    ("op", "shape", "arguments", "mixed"),
    [
        ("dropout1d", (4, 5, 3), {}, {"i2"}),
        ("dropout1d", (5, 3), {}, {"i1"}),
        ("dropout2d", (4, 5, 3, 2), {}, {"i2", "i3"}),
        ("dropout3d", (5, 3, 2, 2), {"training": True}, {"i1", "i2", "i3"}),
        ("dropout2d", (4, 5, 3, 2), {"training": False}, set()),
        ("feature_dropout", (4, 5, 3), {"p": 0.5, "train": True}, {"i2"}),
        ("dropout", (4, 5), {}, set()),
        ("bernoulli", (4, 5), {}, set()),
    ],
)
def test_a_channel_is_dropped_as_a_whole(
    op: str, shape: tuple[int, ...], arguments: dict[str, Any], mixed: set[str]
) -> None:
    rule = lookup(op)
    assert rule is not None
    assert rule.labels is not None
    labelling = rule.labels(Call((Shape(shape),), arguments))
    assert labelling is not None
    assert set(labelling.fates) == mixed
    assert labelling.results == labelling.operands
