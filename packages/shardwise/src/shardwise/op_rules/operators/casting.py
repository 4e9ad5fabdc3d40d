"""Casts, copies and moves between devices: the same values, up to rounding.

Casts between floating dtypes are linear up to their rounding error; docs/semantics.md section 3 allows them.
"""

from __future__ import annotations

from ..propagation.dim_labels import Labeller, broadcast_into, pointwise
from ..schema import LEFT_OUT, TORCHS, OpRule
from ..vocabulary.guards import always_casts, casts

_ROUNDING = "linear up to rounding"
_WRAPS = "a sum of integers, modulo the target's range; a cast from a floating dtype rounds and is refused"
_FLOATING = ("float", "double", "half", "bfloat16", "cfloat", "cdouble", "chalf")
_INTEGER = ("int", "long", "short", "char", "byte")


def _same_values(op: str, *spellings: str, params: str = "input", view: bool = LEFT_OUT) -> OpRule:
    law = "the same values, elsewhere or unchanged"
    source = f"torch.Tensor.{op}"
    return OpRule(op, params, "input", law=law, source=source, view=view, spellings=spellings, labels=pointwise)


def _cast(op: str, params: str, *static: str, targets: tuple[str, ...] = ("dtype",), view: bool = True) -> OpRule:
    return OpRule(
        op,
        params,
        "input",
        law=_ROUNDING,
        source=f"torch.Tensor.{op}",
        view=view,
        static=static,
        guard=casts(*targets),
        labels=pointwise,
    )


def _overwrites(op: str, source: str, *spellings: str, rest: str = "", labels: Labeller = pointwise) -> OpRule:
    return OpRule(
        op,
        f"~input {source} {rest}".strip(),
        source,
        law="the source's values, in the destination's dtype",
        source=f"torch.Tensor.{op}",
        static=("input",),
        guard=casts("input", source=source),
        spellings=spellings,
        labels=labels,
    )


def _to(op: str, law: str, integer: bool) -> OpRule:
    guard = always_casts(op) if integer else None
    params, source = "input memory_format", f"torch.Tensor.{op}"
    return OpRule(op, params, "input", law=law, source=source, guard=guard, labels=pointwise)


RULES = (
    *(_to(op, _ROUNDING, integer=False) for op in _FLOATING),
    *(_to(op, _WRAPS, integer=True) for op in _INTEGER),
    OpRule("bool", "input memory_format", law="asks of each element whether it is zero", labels=pointwise),
    # The first argument of ``to`` is a device, a dtype, or another tensor whose dtype and device are taken.
    _cast("to", "input ~other dtype", "other", "dtype", targets=("other", "dtype")),
    _cast("type_as", "input ~other", "other", targets=("other",)),
    _cast("type", "input dtype", "dtype"),
    _cast("_to_copy", "input dtype", "dtype", view=False),
    _same_values("_autocast_to_full_precision", "_autocast_to_reduced_precision", view=True),
    _same_values("clone", "lift_fresh_copy", "alias_copy", "detach_copy", params=TORCHS),
    _same_values("contiguous", params="input memory_format", view=False),
    _same_values("detach", "data", "alias", "lift", "lift_fresh", "_fw_primal"),
    _same_values("__deepcopy__", "as_subclass", "_lazy_clone"),
    _same_values("cpu", "cuda", "xpu", "ipu", "mtia", "pin_memory", "to_dense", "_to_dense", view=False),
    _same_values("to_mkldnn"),
    # These overwrite their destination, whose old value does not matter but whose dtype does.
    _overwrites("copy_", "src", "copy", rest="non_blocking", labels=broadcast_into),
    _overwrites("fill_", "value", "fill", labels=broadcast_into),
    _overwrites("constant_", "val"),
    _overwrites("module_load", "other"),
    OpRule("set_", "~input source", "source", law="the source's memory", source="torch.Tensor.set_"),
)
