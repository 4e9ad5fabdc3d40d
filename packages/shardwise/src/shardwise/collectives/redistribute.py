"""``redistribute``: from one placement to another on an axis, whatever it takes. The value is kept.

``redistribute`` picks the op from the table of routes in op_rules/transitions.py. One axis at a time: when several axes
shard one tensor dim, only the innermost may move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

from torch import Tensor

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.boundary import boundary
from shardwise.op_rules.transitions import ROUTES, letter, transition
from shardwise.types.aliases import DeviceMeshAxis
from shardwise.types.placement import PerMeshAxisSpmdType

from .coerce import convert
from .communicate import all_gather, all_reduce, all_to_all, reduce_scatter
from .request import RedistributeOptions

_OPS: dict[str, Callable[..., Tensor]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "convert": convert,
}


@boundary
def redistribute(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    split_sizes: Sequence[int] | None = None,
    **options: Unpack[RedistributeOptions],
) -> Tensor:
    """``x`` in another placement with the same value, with as much communication as that takes.

    Shapes:  those of the op taken; V -> R stacks, P -> V and R/I -> V drop dim 0, S(i) -> R concatenates along i.
    Types:   src -> dst; the same placement, or V for S(i) and back, returns ``x`` itself.
    Errors:  SW202 if no op leads from src to dst; those of the op taken. Options are that op's.
    Source:  op_rules/transitions.py, ROUTES.
    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": P})
        >>> print(typeof(redistribute(x, "tp", src=P, dst=S(1))))
        f32[4, 2] {dp: R, tp: V}
    """
    from_, to = letter(src), letter(dst)
    op = ROUTES.get((from_, to))
    if op is None:
        refused = transition("redistribute", src, dst, axis=axis)
        assert isinstance(refused, Diagnosis), "redistribute has no rows of its own"
        raise SpmdValueError(refused.message, code=refused.code, help=refused.help)
    if from_ == to == "S" and src == dst:
        op = "convert"
    if split_sizes is not None and op == "all_to_all":
        raise SpmdValueError(
            "redistribute between two dims cuts one and joins the other, so it takes no single split_sizes",
            code="SW208",
            help=("all_to_all(x, axis, ..., output_split_sizes=..., input_split_sizes=...)",),
        )
    sizes = {} if split_sizes is None else {"split_sizes": split_sizes}
    expert = {"expert_mode": True} if op == "convert" else {}
    return _OPS[op](x, axis, src=src, dst=dst, **sizes, **expert, **options)
