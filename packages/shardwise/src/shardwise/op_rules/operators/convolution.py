"""Sliding windows: the batch is kept, channels are contracted or kept, and along the spatial dims windows overlap.

Convolutions are bilinear, averages and resizing linear in their input; maxima and norms over windows in nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..propagation.dim_labels import Call, Dims, Fate, Label, Labeller, Labelling, Shape, numbered, signature
from ..schema import TORCHS, Guard, Kind, OpRule, opaque
from ..vocabulary.guards import floating
from ..vocabulary.labellers import because, by_role, kept, moved, tensor_at

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
    if call.get("groups", 1) == 1 and not call.is_shared("groups"):
        return _windows(call, operands, "c", ("o", "c"), "o", stay)
    return _windows(call, operands, "g", ("g", "in"), "g", stay, mixed=("in",))


def _transposed(call: Call) -> Labelling | None:
    """``[n] c *s, c o *k, o -> [n] o *s``; groups are counted over the whole, or are a rank's share."""
    operands = _operands(call)
    if operands is None:
        return None
    if call.is_shared("groups"):
        return _windows(call, operands, "g", ("g", "in"), "g", mixed=("in",))
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


def _each(value: object, spatial: int) -> list[Any]:
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


_AFFINE = "a sum of products plus a bias: the bias must be pending when the products are"
_AVERAGES = "averages windows with fixed weights"
_RESIZES = "interpolates with weights that depend on sizes only"
_BORDER = "copies the border"
_DIVIDES = floating("rounds each rank's quotient, because the values are integers")
_TRANSPOSED_BY = "input weight bias stride padding output_padding groups dilation"
_DRAWN = "input kernel_size output_size output_ratio return_indices _random_samples"
_SPATIAL = (1, 2, 3)


def _convolves(op: str, labels: Labeller, *spellings: str, params: str = TORCHS) -> OpRule:
    linear = "input weight + bias"
    return OpRule(op, params, linear, law=_AFFINE, spellings=spellings, labels=labels)


def _of_input(
    law: str, op: str, labels: Labeller | None, *spellings: str, params: str = TORCHS, guard: Guard | None = None
) -> OpRule:
    source = f"torch.nn.functional.{op}"
    return OpRule(op, params, "input", law=law, source=source, spellings=spellings, guard=guard, labels=labels)


def _maximum(name: str, labels: Labeller, params: str = TORCHS) -> tuple[OpRule, ...]:
    return opaque("is an extreme", name, params, labels=labels)


def _drawn(name: str, spatial: int) -> OpRule:
    law, labels = "drawn from the generator in use", _pooled_at_random(spatial)
    return OpRule(name, _DRAWN, kind=Kind.RANDOM, law=law, labels=labels)


RULES = (
    _convolves("conv1d", _convolved, "conv2d", "conv3d"),
    _convolves("conv_transpose1d", _transposed, "conv_transpose2d", "conv_transpose3d", params=_TRANSPOSED_BY),
    _convolves("conv_tbc", because(_WINDOWS, by_role("input weight bias", "[t] b c, [k] c o, o -> [t] b o"))),
    _convolves("convolution", _kernel_call, "_convolution"),
    *(_of_input(_AVERAGES, f"avg_pool{at}d", _pooled(at), guard=_DIVIDES) for at in _SPATIAL),
    *(
        _of_input(_AVERAGES, f"{private}adaptive_avg_pool{at}d", _adapted(at), params="input output_size")
        for at in _SPATIAL
        for private in ("", "_")
        if private == "" or at > 1  # one dim has no kernel of its own
    ),
    _of_input("copies windows out, or sums them back", "fold", _folded, "col2im"),
    _of_input(_RESIZES, "interpolate", _interpolated),
    _of_input(_RESIZES, "upsample", _interpolated, "upsample_nearest", params="input size scale_factor mode"),
    _of_input(_RESIZES, "upsample_bilinear", _resized, params="input size scale_factor"),
    # The kernels behind interpolate and pad, which are called directly only as ``torch.ops.aten``.
    *(
        _of_input(_RESIZES, op, _resized, params="input output_size")
        for op in (
            *(f"{nearest}{at}d" for nearest in ("upsample_nearest", "_upsample_nearest_exact") for at in _SPATIAL),
            *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
            *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        )
    ),
    *(
        _of_input(_BORDER, f"{how}_pad{at}d", _pooled(at), params="input padding")
        for how in ("reflection", "replication")
        for at in _SPATIAL
    ),
    _of_input(_BORDER, "_pad_circular", _resized, params="input padding"),
    OpRule(
        "grid_sample",
        linear="input",
        law="interpolates with weights that depend on the grid only",
        source="torch.nn.functional.grid_sample",
        spellings=("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"),
        labels=_sampled,
    ),
    OpRule(
        "affine_grid",
        linear="theta",
        law="a matrix product with fixed coordinates",
        source="torch.nn.functional.affine_grid",
        spellings=("affine_grid_generator",),
        labels=_grid,
    ),
    *(
        _of_input("reads elements at positions that are equal on every rank", f"max_unpool{at}d", _unpooled(at))
        for at in _SPATIAL
    ),
    *(rule for at in _SPATIAL for rule in opaque("is a statistic", f"lp_pool{at}d", labels=_pooled(at))),
    *(rule for at in _SPATIAL for rule in _maximum(f"max_pool{at}d max_pool{at}d_with_indices", _pooled(at))),
    *(
        rule
        for at in _SPATIAL
        for indices in ("", "_with_indices")
        for rule in _maximum(
            f"adaptive_max_pool{at}d{indices}", _adapted(at, indexed=indices != ""), "input output_size"
        )
    ),
    *(_drawn(f"fractional_max_pool{at}d{indices}", at) for at in (2, 3) for indices in ("", "_with_indices")),
)
