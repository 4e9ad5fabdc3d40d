"""Which typed moves take up what another one has left? So that it can be asked whether one move does what both do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field

import torch.distributed as dist
from torch import Tensor

from shardwise.collectives.functions import forget_recipes
from shardwise.collectives.kernels import Kernel
from shardwise.collectives.recipe import Recipe
from shardwise.diagnostics.source import user_location
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.host.attribute_patch import patched
from shardwise.interop.communication.process_groups import Communicator
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.torch_compat import in_backward
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.layout import layout_of_ranks
from shardwise.op_rules.transitions import Transition
from shardwise.types.placement import I, P, PerMeshAxisSpmdType, R, Shard


@dataclass(frozen=True, slots=True)
class TypedMove:
    """A move along one axis: of a tensor of local ``shape``, from ``src`` to ``dst``."""

    op: str
    axis: MeshAxis
    src: PerMeshAxisSpmdType
    dst: PerMeshAxisSpmdType
    shape: tuple[int, ...]
    dtype: str
    location: SourceLocation | None

    @property
    def dim(self) -> int:
        """The dim of which it takes shards; 0 if it takes none."""
        return self.src.dim if isinstance(self.src, Shard) else 0


_WHOLE = {"R": R, "I": I, "P": P}


@dataclass(frozen=True, slots=True)
class MovesSeen:
    """The typed moves of a run, in forward; and the ``pairs`` of which the second took the very tensor that the first
    had made.
    """

    moves: dict[TypedMove, None] = field(default_factory=dict)
    pairs: dict[tuple[TypedMove, TypedMove], None] = field(default_factory=dict)


@contextlib.contextmanager
def moves_seen() -> Iterator[MovesSeen]:
    """Those of the block."""
    seen = MovesSeen()
    made: MutableMapping[Tensor, TypedMove] = by_tensor()
    original = Recipe.__init__

    def init(recipe: Recipe, row: Transition, *rest: object) -> None:
        original(recipe, row, *rest)  # type: ignore[arg-type]
        kernel: Kernel = recipe.kernel

        def noting(x: Tensor, comm: Communicator, effect: Recipe, sizes: object) -> Tensor:
            result = kernel(x, comm, effect, sizes)
            move = None if in_backward() or sizes is not None else _move(x, comm, row, effect)
            if move is not None and result is not x:
                before = made.get(x)
                if before is not None:
                    seen.pairs[before, move] = None
                seen.moves[move] = None
                made[result] = move
            return result

        recipe.kernel = noting

    forget_recipes()
    try:
        with patched(Recipe, "__init__", init):
            yield seen
    finally:
        forget_recipes()


def _move(x: Tensor, comm: Communicator, row: Transition, recipe: Recipe) -> TypedMove | None:
    """None for one over no axis, or of what has no whole."""
    if comm.size < 2:
        return None
    layout = layout_of_ranks(dist.get_process_group_ranks(comm.group))  # type: ignore[arg-type]
    if layout is None:
        return None
    src = _placement(row.reads, recipe.other_dim if row.op == "all_to_all" else recipe.dim)
    dst = _placement(row.dst, recipe.dim)
    if src is None or dst is None:
        return None
    dtype = str(x.dtype).removeprefix("torch.")
    return TypedMove(row.op, MeshAxis(layout), src, dst, tuple(map(int, x.shape)), dtype, user_location(1))


def _placement(letter: str, dim: int) -> PerMeshAxisSpmdType | None:
    """None for V, of which nobody knows what the whole is, and for a pending extremum."""
    return Shard(dim) if letter == "S" else _WHOLE.get(letter)
