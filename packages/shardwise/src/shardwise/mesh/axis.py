"""What is a mesh axis? A value: the layout of the ranks along one fiber, counted from 0. It owns no communicator.

Equal axes are one object, so axes compare and hash by identity. Everything is decided on the layout; several process
groups may stand for one axis.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from shardwise._pictured import Pictured
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown

from . import names
from .layout import Layout, layout_of_ranks
from .names import set_printoptions

__all__ = ["MeshAxis", "flatten_axes", "set_printoptions"]


class MeshAxis(Pictured):
    """An axis of a mesh. Make one with ``MeshAxis.of(size, stride)`` or ``MeshAxis.of(process_group)``.

    ``layout``    which ranks, see ``mesh.layout``.
    ``sort_key``  orders axes outermost (largest stride) first.

    Example:
        >>> tp = MeshAxis.of(4, 1)
        >>> tp, tp.size(), tp is normalize_axis("tp")
        (tp, 4, True)
        >>> MeshAxis.of(2, 4).isorthogonal(tp)
        True
    """

    __slots__ = ("__weakref__", "layout", "sort_key")

    layout: Layout
    sort_key: tuple[tuple[int, ...], tuple[int, ...]]

    def __new__(cls, layout: object) -> MeshAxis:
        layout = _as_layout(layout)
        found = _interned.get(layout)
        if found is not None:
            return found
        axis = object.__new__(cls)
        strides = layout.strides or (0,)
        object.__setattr__(axis, "layout", layout)
        object.__setattr__(
            axis, "sort_key", (tuple(-stride for stride in strides), tuple(-size for size in layout.sizes))
        )
        # setdefault is atomic: two threads that make one axis at once get one object.
        return _interned.setdefault(layout, axis)

    @classmethod
    def of(cls, source: object, stride: int | None = None) -> MeshAxis:
        """The axis of ``source``: a size with a stride, a process group, or an object with ``__mesh_axis__()``.

        Errors: TypeError for anything else, or a stride with or without need; SW903 if the ranks form no layout.
        """
        if isinstance(source, int) and not isinstance(source, bool):
            if stride is None:
                raise SpmdArgumentError(
                    f"MeshAxis.of({source}) needs the stride between the ranks too",
                    help=(f"MeshAxis.of({source}, 1)",),
                )
            return cls(Layout(source, stride))
        if stride is not None:
            raise SpmdArgumentError(
                f"MeshAxis.of takes a stride with a size only, got stride {stride!r} with {_describe(source)}"
            )
        if isinstance(source, MeshAxis):
            return source
        found = _remembered(source)
        if found is None:
            found = _axis_of_object(source)
            _remember(source, found)
        return found

    @classmethod
    def from_layout(cls, sizes: Iterable[int], strides: Iterable[int]) -> MeshAxis:
        """The axis with these atoms."""
        return cls(Layout(tuple(sizes), tuple(strides)))

    def size(self) -> int:
        """How many ranks are on one fiber."""
        return self.layout.numel()

    @property
    def names(self) -> frozenset[str]:
        """The registered names."""
        return names.names_of(self)

    def isorthogonal(self, *others: MeshAxis) -> bool:
        """Whether these axes, taken together, are independent; axes of one rank are independent of anything."""
        return self.layout.isorthogonal(*(other.layout for other in others))

    # Comparison is inclusion of the rank sets, both counted from 0.
    def __le__(self, other: object) -> bool:
        return self.layout.issubset(other.layout) if isinstance(other, MeshAxis) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return (
            self is not other and self.layout.issubset(other.layout) if isinstance(other, MeshAxis) else NotImplemented
        )

    def __ge__(self, other: object) -> bool:
        return other.layout.issubset(self.layout) if isinstance(other, MeshAxis) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return (
            self is not other and other.layout.issubset(self.layout) if isinstance(other, MeshAxis) else NotImplemented
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a MeshAxis is frozen: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a MeshAxis is frozen: cannot delete {name!r}")

    def __reduce__(self) -> tuple[object, ...]:
        return (MeshAxis.from_layout, (self.layout.sizes, self.layout.strides))

    def __repr__(self) -> str:
        return names.display(self)


_interned: dict[Layout, MeshAxis] = {}
_axis_of: weakref.WeakKeyDictionary[Any, MeshAxis] = weakref.WeakKeyDictionary()


def flatten_axes(axes: tuple[MeshAxis, ...]) -> MeshAxis:
    """The one axis that several mutually orthogonal ones make together. Errors: ValueError.

    Example:
        >>> flatten_axes((MeshAxis.of(2, 4), MeshAxis.of(4, 1))) is MeshAxis.of(8, 1)
        True
    """
    if not axes:
        raise SpmdValueError("flatten_axes needs at least one axis", code="SW903")
    if not axes[0].isorthogonal(*axes[1:]):
        listed = ", ".join(map(repr, axes))
        raise SpmdValueError(
            f"only orthogonal axes can be flattened into one; {listed} are not orthogonal", code="SW901"
        )
    return MeshAxis(axes[0].layout.merge(*(axis.layout for axis in axes[1:])))


def _reset() -> None:
    """Forget names, the axes of process groups, and print options: for a new set of process groups."""
    names.clear_names()
    names.reset_printoptions()
    _axis_of.clear()


def _as_layout(layout: object) -> Layout:
    if isinstance(layout, Layout):
        return layout
    # PyTorch's own: one dim has ``shape`` and ``stride``, a whole mesh has ``axes`` of these.
    axes = getattr(layout, "axes", None)
    shape: Any
    stride: Any
    if isinstance(axes, tuple):
        shape, stride = tuple(axis.shape for axis in axes), tuple(axis.stride for axis in axes)
    else:
        shape, stride = getattr(layout, "shape", None), getattr(layout, "stride", None)
    if not isinstance(shape, (int, tuple)) or not isinstance(stride, (int, tuple)):
        raise SpmdArgumentError(
            f"MeshAxis(layout) takes a layout, got {_describe(layout)}",
            help=("MeshAxis.of(size, stride)", "MeshAxis.of(process_group)"),
        )
    return Layout(shape, stride)


def _axis_of_object(source: object) -> MeshAxis:
    hook = getattr(source, "__mesh_axis__", None)
    if hook is not None:
        axis = hook()
        if not isinstance(axis, MeshAxis):
            raise SpmdArgumentError(f"__mesh_axis__ of {_describe(source)} returned {_describe(axis)}, not a MeshAxis")
        return axis
    found = ranks_of_group(source)
    if found is None:
        raise SpmdArgumentError(
            f"a mesh axis is a MeshAxis, a process group, or a size with a stride, got {_describe(source)}",
            help=(f"normalize_axis({source!r}) looks a name up in the current mesh",)
            if isinstance(source, str)
            else (),
        )
    ranks, name = found
    if not ranks:
        raise SpmdValueError(f"{_describe(source)} has no ranks, so it is no mesh axis", code="SW903")
    layout = layout_of_ranks(ranks)
    if layout is None:
        raise SpmdValueError(
            f"the ranks {sorted(ranks)} of {name or _describe(source)} are not evenly spaced, so they are no mesh axis",
            code="SW903",
        )
    axis = MeshAxis(layout)
    if name and name != "undefined":
        names.register_name(axis, name)
    return axis


def ranks_of_group(obj: object) -> tuple[Sequence[int], str | None] | None:
    """The ranks of a process group and its name; None if ``obj`` is none.

    The mesh loads without torch. A group can only exist where ``torch.distributed`` is loaded already.
    """
    dist = sys.modules.get("torch.distributed")
    group_class = getattr(dist, "ProcessGroup", None)
    if dist is None or group_class is None or not isinstance(obj, group_class):
        return None
    name = getattr(obj, "group_desc", None)
    # A device mesh describes the group of its axis tp as mesh_tp; the program says tp.
    return dist.get_process_group_ranks(obj), name and name.removeprefix("mesh_")


def _remembered(source: object) -> MeshAxis | None:
    try:
        return _axis_of.get(source)
    except TypeError:  # not hashable, or no weak references
        return None


def _remember(source: object, axis: MeshAxis) -> None:
    with contextlib.suppress(TypeError):
        _axis_of[source] = axis


def _describe(obj: object) -> str:
    return f"{shown(obj)} of type {type(obj).__name__}"
