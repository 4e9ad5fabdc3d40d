"""Which sliding-window operators are linear? Convolutions bilinearly, averages and resizing in their input.

Maxima and norms over windows are in ``opaque.py``.
"""

from __future__ import annotations

from ..schema import OpRule
from .guards import Guard, floating

_AFFINE = "a sum of products plus a bias: the bias must be pending when the products are"
_AVERAGES = "averages windows with fixed weights"
_REARRANGES = "copies windows out, or sums them back"
_RESIZES = "interpolates with weights that depend on sizes only"


def _convolves(op: str, rest: str, *spellings: str) -> OpRule:
    params = f"input weight bias {rest}"
    return OpRule(op, params, "input weight + bias", law=_AFFINE, source=f"torch.{op}", spellings=spellings)


def _of_input(law: str, op: str, params: str, *spellings: str, guard: Guard | None = None) -> OpRule:
    source = f"torch.nn.functional.{op}"
    return OpRule(op, params, "input", law=law, source=source, spellings=spellings, guard=guard)


_DIVIDES = floating("rounds each rank's quotient, because the values are integers")


# The kernels behind interpolate and pad, which are called directly only as ``torch.ops.aten``.
_UPSAMPLING = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d"
    " _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d"
    " _upsample_bilinear2d_aa _upsample_bicubic2d_aa"
)
_BORDERS = (
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"
    " _pad_circular"
)
_ADAPTIVE = "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d"
_TRANSPOSED = "stride padding output_padding groups dilation"

RULES = (
    _convolves("conv1d", "stride padding dilation groups", "conv2d", "conv3d"),
    _convolves("conv_transpose1d", _TRANSPOSED, "conv_transpose2d", "conv_transpose3d"),
    _convolves("conv_tbc", "pad"),
    _convolves("convolution", "stride padding dilation transposed output_padding groups", "_convolution"),
    _convolves("miopen_convolution", "padding stride dilation", "miopen_depthwise_convolution"),
    _convolves("miopen_convolution_transpose", "padding output_padding stride dilation"),
    *(
        _of_input(_AVERAGES, op, "input kernel_size", guard=_DIVIDES)
        for op in ("avg_pool1d", "avg_pool2d", "avg_pool3d")
    ),
    *(_of_input(_AVERAGES, op, "input output_size") for op in _ADAPTIVE.split()),
    # ``unfold``, which shares its name with a view of Tensor, is in ``shaping.py``.
    _of_input(_REARRANGES, "fold", "input output_size kernel_size dilation padding stride", "col2im"),
    _of_input(_RESIZES, "interpolate", "input size scale_factor mode"),
    _of_input(_RESIZES, "upsample", "input size scale_factor mode", "upsample_nearest"),
    _of_input(_RESIZES, "upsample_bilinear", "input size scale_factor"),
    *(_of_input(_RESIZES, op, "input output_size") for op in _UPSAMPLING.split()),
    *(_of_input("copies the border", op, "input padding") for op in _BORDERS.split()),
    OpRule(
        "grid_sample",
        "input grid mode padding_mode align_corners",
        "input",
        law="interpolates with weights that depend on the grid only",
        source="torch.nn.functional.grid_sample",
        spellings=("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"),
    ),
    OpRule(
        "affine_grid",
        "theta size align_corners",
        "theta",
        law="a matrix product with fixed coordinates",
        source="torch.nn.functional.affine_grid",
        spellings=("affine_grid_generator",),
    ),
    OpRule(
        "pad",
        "input pad mode value",
        "input + value",
        law="copies the input; a border of zeros adds nothing, another constant is added once per rank",
        source="torch.nn.functional.pad",
    ),
    OpRule(
        "constant_pad_nd",
        "input pad value",
        "input + value",
        law="copies the input; a border of zeros adds nothing, another constant is added once per rank",
        source="torch.constant_pad_nd",
    ),
)
