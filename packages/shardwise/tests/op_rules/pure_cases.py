"""Calls of operators that are linear in nothing, or whose rule says so; none may turn out to be linear unnoticed."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .cases import Case, definite, index, lower, mask, positive, real, unit
from .cases import case as c

A = real(2, 3)
IMAGE = real(1, 2, 4, 4)

_UNARY = """
    ceil floor round trunc frac isfinite isinf isnan signbit sign sgn abs angle square exp exp2 expm1 sin cos tan
    atan sinh cosh tanh asinh sinc erf erfc sigmoid digamma lgamma i0 logical_not nan_to_num reciprocal all any
    prod var std argmax argmin amax amin logsumexp_all sort_values unique_all count_nonzero
"""
_POSITIVE = """
    sqrt rsqrt log log2 log10 log1p
"""
_UNIT = """
    asin acos atanh erfinv logit
"""
_BINARY = """
    eq lt maximum minimum fmax atan2 hypot logaddexp copysign fmod remainder heaviside logical_and dist
"""
_ACTIVATIONS = """
    relu elu selu celu gelu silu mish leaky_relu logsigmoid softplus softsign softshrink hardshrink tanhshrink
    hardtanh relu6 hardsigmoid hardswish normalize
"""
_SPECIAL = """
    entr erfcx i0e i1 i1e log_ndtr ndtr bessel_j0 bessel_j1 spherical_bessel_j0 airy_ai
"""
_MEANINGS = {"sort_values": "sort", "unique_all": "unique", "logsumexp_all": "logsumexp"}


def _unary(name: str) -> Case:
    functions = {
        "sort_values": lambda x: torch.sort(x)[0],
        "unique_all": torch.unique,
        "logsumexp_all": lambda x: torch.logsumexp(x, 0),
    }
    return c(
        _MEANINGS.get(name, name),
        functions.get(name, getattr(torch, name, None)),
        A,
        differentiable=name != "unique_all",
    )


PURE = [
    *(_unary(name) for name in _UNARY.split()),
    *(c(name, getattr(torch, name), positive(2, 3)) for name in _POSITIVE.split()),
    *(c(name, getattr(torch, name), unit(2, 3)) for name in _UNIT.split()),
    *(c(name, getattr(torch, name), A, A, differentiable=name != "heaviside") for name in _BINARY.split()),
    *(c(name, getattr(F, name), A) for name in _ACTIVATIONS.split()),
    *(c(f"special.{name}", getattr(torch.special, name), positive(2, 3)) for name in _SPECIAL.split()),
    c("pow", torch.pow, A, 2),
    c("rpow", lambda x: 2.0**x, A),
    c("float_power", torch.float_power, positive(2, 3), A),
    c("floor_divide", torch.floor_divide, A, 2.0, differentiable=False),
    c("clamp", torch.clamp, A, -0.5, 0.5),
    c("clamp", torch.clamp, A, A, A),
    c("glu", F.glu, real(2, 4)),
    c("prelu", F.prelu, A, real(1)),
    c("threshold", F.threshold, A, 0.1, 20.0),
    c("softmax", torch.softmax, A, 1),
    c("log_softmax", torch.log_softmax, A, 1),
    c("logcumsumexp", torch.logcumsumexp, A, 1),
    c("cumprod", torch.cumprod, A, 1),
    c("cummax", lambda x: torch.cummax(x, 1)[0], A),
    c("topk", lambda x: torch.topk(x, 2)[0], A),
    c("median", torch.median, A),
    c("quantile", torch.quantile, A, 0.3),
    c("max_pool2d", F.max_pool2d, IMAGE, 2),
    c("lp_pool1d", F.lp_pool1d, positive(1, 2, 4), 2.0, 2),
    c("local_response_norm", F.local_response_norm, IMAGE, 2),
    c("cosine_similarity", F.cosine_similarity, A, A),
    c("norm", torch.norm, A),
    c("linalg.norm", torch.linalg.norm, A),
    c("linalg.vector_norm", torch.linalg.vector_norm, A),
    c("cdist", torch.cdist, A, A),
    c("nansum", torch.nansum, A),
    c("histc", lambda x: torch.histc(x.detach(), 4), A),
    c("cov", torch.cov, A),
    c("nonzero", torch.nonzero, mask(2, 3)),
    c("argsort", torch.argsort, A),
    c("one_hot", F.one_hot, index(3, 4), 4),
    c("inverse", torch.inverse, definite(3)),
    c("linalg.inv", torch.linalg.inv, definite(3)),
    c("linalg.pinv", torch.linalg.pinv, definite(3)),
    c("det", torch.det, definite(3)),
    c("logdet", torch.logdet, definite(3)),
    c("cholesky_inverse", torch.cholesky_inverse, lower(3)),
    c("linalg.cholesky", torch.linalg.cholesky, definite(3)),
    c("matrix_exp", torch.matrix_exp, real(2, 2)),
    c("matrix_power", torch.matrix_power, real(2, 2), 2),
    c("mse_loss", F.mse_loss, A, A),
    c("l1_loss", F.l1_loss, A, A),
    c("smooth_l1_loss", F.smooth_l1_loss, A, A),
    c("huber_loss", F.huber_loss, A, A),
    c("kl_div", lambda *a: F.kl_div(*a, reduction="sum"), A, unit(2, 3)),
    c("poisson_nll_loss", F.poisson_nll_loss, A, positive(2, 3)),
    c("soft_margin_loss", F.soft_margin_loss, A, A, differentiable=False),
    c("polar", torch.polar, positive(2), real(2)),
    c("isclose", torch.isclose, A, A),
    c("bitwise_and", torch.bitwise_and, index(8, 3), index(8, 3)),
]
if hasattr(torch.linalg, "polar"):  # exceptions.NEWER
    PURE += [
        c("linalg.polar", torch.linalg.polar, real(3, 2)),
        c("linalg.matrix_sqrth", torch.linalg.matrix_sqrth, definite(3)),
    ]
