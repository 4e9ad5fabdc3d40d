"""``NdimWithSpmdType``, which stands for a tensor in a typing rule, where only its ndim and its type matter."""

from __future__ import annotations

from shardwise.diagnostics.errors import SpmdArgumentError
from shardwise.interop.tensors.tagging import set_type, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.types.tensor_type import UNTYPED, TensorType


class NdimWithSpmdType:
    """A tensor without data: a number of dims and a type, accepted by the annotation functions and the rules.

    ``requires_grad``   always True: nothing is known of the tensor that it stands for, so R and I stay apart.
    ``summable``        the mesh axes along which it varies and may be read as a partial sum, because it came out of a
                        contraction of operands that vary there.
    ``described``       how messages call it.

    Example:
        >>> x = assert_type(NdimWithSpmdType(2), {"dp": R, "tp": S(0)})
        >>> x
        NdimWithSpmdType(ndim=2, {dp: R, tp: V} PartitionSpec(tp, None))
    """

    requires_grad = True

    def __init__(self, ndim: int) -> None:
        if not isinstance(ndim, int) or isinstance(ndim, bool) or ndim < 0:
            raise SpmdArgumentError(f"NdimWithSpmdType takes a number of dims, got {ndim!r}", code="SW304")
        self.ndim = ndim
        self.summable: frozenset[MeshAxis] = frozenset()
        self.described = ""

    @classmethod
    def of(
        cls, ndim: int, type: TensorType = UNTYPED, *, described: str = "", summable: frozenset[MeshAxis] = frozenset()
    ) -> NdimWithSpmdType:
        """A stand-in that carries ``type``."""
        made = cls(ndim)
        set_type(made, type)
        made.described = described
        made.summable = summable
        return made

    def dim(self) -> int:
        return self.ndim

    def __repr__(self) -> str:
        return f"NdimWithSpmdType(ndim={self.ndim}, {type_of(self)!r})"
