"""Does a pending sum survive a change of dtype, device or memory? Yes, up to rounding, unless the target is rounded to.

Casts between floating dtypes are linear up to their rounding error; docs/semantics.md section 3 allows them.
"""

from __future__ import annotations

from ..schema import OpRule
from .guards import always_casts, casts

_ROUNDING = "linear up to rounding"
_WRAPS = "a sum of integers, modulo the target's range; a cast from a floating dtype rounds and is refused"

_FLOATING = ("float", "double", "half", "bfloat16", "cfloat", "cdouble", "chalf")
_INTEGER = ("int", "long", "short", "char", "byte")


def _same_values(op: str, *spellings: str, params: str = "input", view: bool = False) -> OpRule:
    law = "the same values, elsewhere or unchanged"
    return OpRule(op, params, "input", law=law, source=f"torch.Tensor.{op}", view=view, spellings=spellings)


def _cast(op: str, params: str, *static: str, targets: tuple[str, ...] = ("dtype",), view: bool = True) -> OpRule:
    guard = casts(*targets)
    source = f"torch.Tensor.{op}"
    return OpRule(op, params, "input", law=_ROUNDING, source=source, view=view, static=static, guard=guard)


def _overwrites(op: str, params: str, source: str, *spellings: str) -> OpRule:
    return OpRule(
        op,
        params,
        source,
        law="the source's values, in the destination's dtype",
        source=f"torch.Tensor.{op}",
        static=("input",),
        guard=casts("input", source=source),
        spellings=spellings,
    )


RULES = (
    *(OpRule(op, "input memory_format", "input", law=_ROUNDING, source=f"torch.Tensor.{op}") for op in _FLOATING),
    *(
        OpRule(
            op,
            "input memory_format",
            "input",
            law=_WRAPS,
            source=f"torch.Tensor.{op}",
            guard=always_casts(op),
        )
        for op in _INTEGER
    ),
    OpRule("bool", "input memory_format", law="asks of each element whether it is zero", source="torch.Tensor.bool"),
    # The first argument of ``to`` is a device, a dtype, or another tensor whose dtype and device are taken.
    _cast("to", "input ~other dtype", "other", "dtype", targets=("other", "dtype")),
    _cast("type_as", "input ~other", "other", targets=("other",)),
    _cast("type", "input dtype", "dtype"),
    _cast("_to_copy", "input dtype", "dtype", view=False),
    _same_values("_autocast_to_full_precision", "_autocast_to_reduced_precision", view=True),
    _same_values("clone", "lift_fresh_copy", "alias_copy", "detach_copy", "_fw_primal_copy", "_make_dual_copy"),
    _same_values("contiguous", params="input memory_format"),
    _same_values("detach", "data", "alias", "lift", "lift_fresh", "_fw_primal", view=True),
    _same_values("__deepcopy__", "as_subclass", "_lazy_clone"),
    _same_values("cpu", "cuda", "xpu", "ipu", "mtia", "pin_memory", "to_dense", "_to_dense"),
    _same_values("to_mkldnn"),
    # These overwrite their destination, whose old value does not matter but whose dtype does.
    _overwrites("copy_", "~input src non_blocking", "src", "copy"),
    _overwrites("fill_", "~input value", "value", "fill"),
    _overwrites("constant_", "~input val", "val"),
    _overwrites("module_load", "~input other", "other"),
    OpRule("set_", "~input source", "source", law="the source's memory", source="torch.Tensor.set_"),
)
