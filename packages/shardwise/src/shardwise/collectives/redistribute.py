"""``redistribute``: from one type to another, whatever it takes. The value is kept.

Along one axis it picks the op from the table of routes in op_rules/transitions.py; when several axes shard one tensor
dim, only the innermost may move. Between whole types it plans (``whole_types.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack, overload

from torch import Tensor

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.boundary import boundary
from shardwise.op_rules.transitions import ROUTES, letter, transition
from shardwise.types.aliases import DeviceMeshAxis
from shardwise.types.placement import PerMeshAxisSpmdType
from shardwise.types.spmd_type import TypeClaim

from .coerce import convert
from .communicate import all_gather, all_reduce, all_to_all, reduce_scatter
from .request import RedistributeOptions, WholeTypeOptions
from .whole_types import redistribute_types

_OPS: dict[str, Callable[..., Tensor]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "convert": convert,
}


@overload
def redistribute(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    split_sizes: Sequence[int] | None = None,
    **options: Unpack[RedistributeOptions],
) -> Tensor: ...
@overload
def redistribute(
    x: Tensor, src_spec: TypeClaim, dst_spec: TypeClaim, **options: Unpack[WholeTypeOptions]
) -> Tensor: ...
@boundary
def redistribute(x: Tensor, *types: Any, **options: Any) -> Tensor:
    """``x`` in another type with the same value: along one axis, or between whole types.

    ``redistribute(x, axis, src=..., dst=...)`` takes one axis from ``src`` to ``dst``. ``redistribute(x, src_spec,
    dst_spec)`` takes two whole types over the same axes, as ``assert_type`` takes one, with any mix of R, I, P and S(i)
    and any order of axes on one dim, and runs the cheapest steps: collectives over several axes at once where the mesh
    has a group for them, and local ones. Options are then

    ``shape``      the global shape, where shards are uneven: as ``torch.chunk`` cuts. Left out, they are even.
    ``max_bytes``  no local tensor on the way is larger.
    ``bandwidth``  bytes per second by axis, all alike if left out; ``latency_s`` seconds per message.
    ``op_dtype``, ``backward_options``  of every collective, as for one.

    Shapes:  along an axis those of the op taken; V -> R stacks, P -> V and R/I -> V drop dim 0, S(i) -> R concatenates
             along i. Between whole types this rank's part of the same global tensor.
    Types:   src -> dst. Gradient: the partners of the steps, backwards; of the dual of dst the dual of src.
    Errors:  SW202 if no steps lead from src to dst; SW132 if the types do not speak of the same axes; SW206 for a
             ``shape`` that ``x`` is no part of; SW208 if ``max_bytes`` cannot be kept; those of the ops taken.
    Source:  op_rules/transitions.py, ROUTES; docs/guide/moves.md.
    Example:
        >>> x = assert_type(torch.ones(4, 8), {"tp": P})
        >>> print(typeof(redistribute(x, "tp", src=P, dst=S(1))))
        f32[4, 2] {dp: R, tp: V}
        >>> x = assert_type(torch.ones(4, 8), {"dp": R, "tp": S(0)})
        >>> print(typeof(redistribute(x, {"dp": R, "tp": S(0)}, {"dp": S(0), "tp": S(1)})))
        f32[8, 2] {dp: V, tp: V}
    """
    if len(types) > 1 or "src_spec" in options or "dst_spec" in options:
        return redistribute_types(x, *types, **options)
    return _along(x, *types, **options)


def _along(
    x: Tensor,
    axis: DeviceMeshAxis,
    *,
    src: PerMeshAxisSpmdType,
    dst: PerMeshAxisSpmdType,
    split_sizes: Sequence[int] | None = None,
    **options: Unpack[RedistributeOptions],
) -> Tensor:
    """The one transition."""
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
