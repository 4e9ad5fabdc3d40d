"""Sliding windows: the batch is kept, channels are contracted or kept, and along the spatial dims windows overlap."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...propagation.dim_labels import Call, Dims, Fate, Label, Labeller, Labelling, Shape, numbered, signature
from ..moves import kept, moved
from ..roles import because, by_role, tensor_at

_WINDOWS = "windows reach into the next shard: the halo of the neighbours' elements must be exchanged first"
_KERNEL = "every window needs the whole kernel"
_GROUPS = "each output channel sums the channels of its own group only"
_RESIZED = "a new element is made of neighbours, which may be on another rank"
_SAMPLED = "a sample may be taken anywhere"
_BLOCKS = "blocks of the dim are summed into places that other ranks have"


def _convolved(call: Call) -> Labelling | None:
    """``[n] c *s, o c *k, o -> [n] o *s``; with groups, a group of ``c`` makes a group of ``o``."""
    operands = _operands(call)
    if operands is None:
        return None
    stay = _touching(call, operands[1])
    if call.get("groups", 1) == 1:
        return _windows(call, operands, "c", ("o", "c"), "o", stay)
    return _windows(call, operands, "g", ("g", "in"), "g", stay, mixed=("in",))


def _transposed(call: Call) -> Labelling | None:
    """``[n] c *s, c o *k, o -> [n] o *s``; groups are counted over the whole, which a shard cannot check."""
    operands = _operands(call)
    if operands is None:
        return None
    return _windows(call, operands, "c", ("c", "o"), "o", mixed=() if call.get("groups", 1) == 1 else ("c", "o"))


def _operands(call: Call) -> tuple[Shape, Shape] | None:
    """Data and weight, if their numbers of dims fit together."""
    data, weight = tensor_at(call, "input"), tensor_at(call, "weight")
    if data is None or weight is None or weight.ndim < 3 or data.ndim not in (weight.ndim, weight.ndim - 1):
        return None
    return data, weight


def _windows(
    call: Call,
    operands: tuple[Shape, Shape],
    channel: Label,
    kernel: tuple[Label, Label],
    out: Label,
    kept: Collection[int] = (),
    mixed: Collection[Label] = (),
) -> Labelling:
    """Labels of data with ``channel`` and of a weight that starts with ``kernel``.

    ``kept``: spatial dims that stay, because no two elements meet in a window. ``mixed``: channels that groups mix.
    """
    data, weight = operands
    places, sides = numbered(weight.ndim - 2, "s"), numbered(weight.ndim - 2, "k")
    batch: Dims = ("n",) if data.ndim == weight.ndim else ()
    rows: dict[str, Dims] = {"input": (*batch, channel, *places), "weight": (*kernel, *sides), "bias": (out,)}
    why = {place: _WINDOWS for at, place in enumerate(places) if at not in kept}
    why |= dict.fromkeys(sides, _KERNEL) | dict.fromkeys(mixed, _GROUPS)
    return Labelling(
        tuple(rows[tensor.param] for tensor in call.tensors),
        ((*batch, out, *places),),
        dict.fromkeys(why, Fate.OPAQUE),
        why,
    )


def _touching(call: Call, weight: Shape) -> set[int]:
    """Spatial dims where a window is a single element, and every element has one."""
    spatial = weight.ndim - 2
    stride, padding = (_each(call.get(name, default), spatial) for name, default in (("stride", 1), ("padding", 0)))
    return {at for at in range(spatial) if weight.shape[2 + at] == 1 and stride[at] == 1 and padding[at] == 0}


def _each(value: Any, spatial: int) -> list[Any]:
    """A number for each of the spatial dims; padding in words is none for a kernel of size 1."""
    if isinstance(value, str):
        return [0] * spatial
    listed = list(value) if isinstance(value, (list, tuple)) else [value]
    return listed if len(listed) == spatial else [listed[0]] * spatial


def _kernel_call(call: Call) -> Labelling | None:
    """The kernel behind all of them says whether it is transposed."""
    return (_transposed if call.get("transposed") else _convolved)(call)


def _pooled(spatial: int) -> Labeller:
    """Windows over the last ``spatial`` dims; all others, channels too, are kept, in the indices as well."""
    sides = " ".join(f"[s{at}]" for at in range(spatial))
    return because(_WINDOWS, signature(f"*b {sides} -> *b {sides}"))


def _adapted(spatial: int, *, indexed: bool = False) -> Labeller:
    """Windows as large as the result's size asks for; None leaves a dim as it is.

    ``indexed``  positions are returned too, which count over all the spatial dims of a rank.
    """

    def label(call: Call) -> Labelling | None:
        sizes = call.get("output_size")
        positions = indexed or True in (call.get("return_indices"), call.get("args[2]"))
        several = isinstance(sizes, (tuple, list)) and len(sizes) == spatial and not positions
        wide = [at for at in range(spatial) if not several or sizes[at] is not None]
        return kept(call, [call.first.ndim - spatial + at for at in wide], _WINDOWS)

    return label


def _unpooled(spatial: int) -> Labeller:
    sides = " ".join(f"[s{at}]" for at in range(spatial))
    return because(_SAMPLED, by_role("input indices", f"*b {sides}, *b {sides} -> *b {sides}"))


def _pooled_at_random(spatial: int) -> Labeller:
    """Where the windows lie is drawn, or given for each sample and channel."""
    sides = " ".join(f"[s{at}]" for at in range(spatial))

    def label(call: Call) -> Labelling | None:
        lead = "n c" if call.first.ndim == spatial + 2 else "c"
        samples = "n c [two]" if lead == "n c" else "[one] c [two]"
        return because(_WINDOWS, by_role("input _random_samples", f"{lead} {sides}, {samples} -> {lead} {sides}"))(call)

    return label


def _resized(call: Call) -> Labelling | None:
    """``n c *s``: whatever lies behind the channels is resized."""
    return moved(call, {0: 0, 1: 1}, call.first.ndim, _RESIZED)


def _interpolated(call: Call) -> Labelling | None:
    """Nearest by a whole factor repeats elements, which stay in their shard."""
    factor = call.get("scale_factor")
    whole = all(isinstance(each, int) for each in (factor if isinstance(factor, (tuple, list)) else [factor]))
    if call.get("size") is None and whole and str(call.get("mode", "nearest")).startswith("nearest"):
        return kept(call)
    return _resized(call)


def _sampled(call: Call) -> Labelling | None:
    """``n c *s, n *p x -> n c *p``: an element of the grid says where to read."""
    data, grid = tensor_at(call, "input"), tensor_at(call, "grid")
    if data is None or grid is None or data.ndim != grid.ndim or data.ndim < 3:
        return None
    read, places = numbered(data.ndim - 2, "s"), numbered(data.ndim - 2, "p")
    rows: dict[str, Dims] = {"input": ("n", "c", *read), "grid": ("n", *places, "x")}
    mixed = (*read, "x")
    return Labelling(
        tuple(rows[tensor.param] for tensor in call.tensors),
        (("n", "c", *places),),
        dict.fromkeys(mixed, Fate.OPAQUE),
        dict.fromkeys(mixed, _SAMPLED),
    )


def _grid(call: Call) -> Labelling | None:
    """One matrix for each sample; three rows make a grid in space."""
    places = "h w" if call.first.shape[-2:] == (2, 3) else "d h w"
    return because("coordinates are made of whole matrices", signature(f"n [i] [j] -> n {places} x"))(call)


def _folded(call: Call) -> Labelling | None:
    """``[n] (c *k) l -> [n] c h w``: channels are the outer part of theirs, in whole blocks."""
    ndim = call.first.ndim
    if ndim not in (2, 3):
        return None
    size = call.get("kernel_size")
    height, width = _each(size, 2)
    whole = call.first.shape[-2] % (height * width) == 0
    target = {dim: dim for dim in range(ndim - 1) if dim != ndim - 2 or whole}
    return moved(call, target, ndim + 1, _BLOCKS)


_BY_SPATIAL = """
    avg_pool max_pool lp_pool reflection_pad replication_pad
"""
_ADAPTIVE = "adaptive_avg_pool _adaptive_avg_pool"
_UPSAMPLING = """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d
    upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
"""

LABELS: dict[str, Labeller] = {
    "conv1d": _convolved,
    "conv_transpose1d": _transposed,
    "conv_tbc": because(_WINDOWS, by_role("input weight bias", "[t] b c, [k] c o, o -> [t] b o")),
    "convolution": _kernel_call,
    **{f"{op}{spatial}d": _pooled(spatial) for op in _BY_SPATIAL.split() for spatial in (1, 2, 3)},
    **{f"max_pool{spatial}d_with_indices": _pooled(spatial) for spatial in (1, 2, 3)},
    **{f"{op}{spatial}d": _adapted(spatial) for op in _ADAPTIVE.split() for spatial in (1, 2, 3)},
    **{
        f"adaptive_max_pool{spatial}d{indices}": _adapted(spatial, indexed=indices != "")
        for spatial in (1, 2, 3)
        for indices in ("", "_with_indices")
    },
    **{f"max_unpool{spatial}d": _unpooled(spatial) for spatial in (1, 2, 3)},
    **{
        f"fractional_max_pool{spatial}d{indices}": _pooled_at_random(spatial)
        for spatial in (2, 3)
        for indices in ("", "_with_indices")
    },
    **dict.fromkeys(_UPSAMPLING.split(), _resized),
    "interpolate": _interpolated,
    "upsample": _interpolated,
    "upsample_bilinear": _resized,
    "_pad_circular": _resized,
    "grid_sample": _sampled,
    "affine_grid": _grid,
    "fold": _folded,
}
del LABELS["_adaptive_avg_pool1d"]  # has no kernel of its own
