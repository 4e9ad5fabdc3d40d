"""Element-by-element functions that never decrease, by name: a pending maximum or minimum passes through them.

f(max(a, b)) = max(f(a), f(b)) where f never decreases; element by element, so views and casts count, and so do bounds
that are equal on every rank (clamp). Source: docs/semantics.md section 9.
"""

from __future__ import annotations

from typing import Final

from ..schema import Arguments

_MOVES = """
    getitem alias clone contiguous cpu cuda data detach pin_memory requires_grad_ positive reshape flatten
    ravel select index_select narrow split chunk unbind expand expand_as view view_as reshape_as squeeze unsqueeze
    permute transpose movedim t mT T to type type_as _to_copy float double half bfloat16 int long short
    char byte repeat repeat_interleave broadcast_to _autocast_to_full_precision
    _autocast_to_reduced_precision as_strided diagonal linalg.diagonal hsplit vsplit dsplit tensor_split unflatten
    unfold flip fliplr flipud roll rot90 tile gather take take_along_dim diag tril triu
"""
MOVES: Final = frozenset(_MOVES.split())
"""The same elements in another shape, place or dtype, zeros in between; a rounding never decreases."""

_KEEPING_ORDER = """
    relu relu6 hardtanh hardsigmoid sigmoid logsigmoid tanh softplus elu selu celu softsign exp exp2 expm1
    log log2 log10 log1p sqrt special.erf erf special.expm1 atan arctan asinh sinh ceil floor round trunc fix
    sign sgn deg2rad rad2deg clamp clamp_min clamp_max clip special.expit logit erfinv special.erfinv asin
"""
NON_DECREASING: Final = MOVES | frozenset(_KEEPING_ORDER.split())
"""Functions of one tensor, further arguments equal on every rank; what their rules have a guard against falls."""

LARGEST: Final = frozenset(["maximum", "fmax", "max", "amax", "any"])
SMALLEST: Final = frozenset(["minimum", "fmin", "min", "amin", "all"])
"""Ops that are the reduction itself: of two tensors, or along dims."""

ABOVE: Final = frozenset(["gt", "ge", "greater", "greater_equal"])
BELOW: Final = frozenset(["lt", "le", "less", "less_equal"])
"""Comparisons with what is equal on every rank: whether x is above it never turns from true to false where x grows."""

PICKS: Final = frozenset(
    ["cat", "stack", "hstack", "vstack", "dstack", "column_stack", "where", "torch.where", "masked_fill"]
)
"""Every element of the result is one of the summands of the op's law: they may be pending, and equal on every rank."""

_SMOOTH = 20.0
"""Softplus's own threshold: beyond it the identity, a step down by log(1 + e**-20), which no float32 can tell."""


def elu_falls(static: Arguments) -> str | None:
    """``scale * alpha * (exp(input_scale * x) - 1)`` below zero falls where a factor is negative."""
    for name in ("alpha", "scale", "input_scale"):
        value = static.get(name)
        if value is not None and value < 0:
            return f"{name}={value!r} makes it decrease below zero"
    return None


def softplus_falls(static: Arguments) -> str | None:
    """``log(1 + exp(x))`` lies above x, which takes its place behind the threshold."""
    threshold = static.get("threshold")
    if threshold is None or threshold >= _SMOOTH:
        return None
    return f"threshold={threshold!r} makes it step down there"
