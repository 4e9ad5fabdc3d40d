"""Calls for the pages of operators whose dims depend on arguments: sizes of tensors, and what else is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from shardwise.op_rules.propagation.dim_labels import Shape
from shardwise.op_rules.schema import OpRule


@dataclass(frozen=True)
class ExampleCall:
    """``sizes`` of tensors by parameter, those of a list as ``operands0``, ``operands1``; ``given`` is the rest.

    A tensor of which only the shape matters is a ``Shape`` among the rest. ``whole`` are the names of tensors of whole
    numbers, ``masks`` those of truth values.
    """

    sizes: Mapping[str, tuple[int, ...]]
    given: Mapping[str, object] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    masks: frozenset[str] = frozenset()


def call_of(rule: OpRule) -> ExampleCall | None:
    """That of the spelling that is asked for, or of another one of the same operator."""
    return next((CALLS[name] for name in (rule.op, *rule.spellings) if name in CALLS), None)


_ALONG_1 = {"dim": 1}
_X = (4, 6, 8)
_IMAGES = (2, 4, 6, 8)
_VOLUMES = (2, 4, 6, 8, 10)
_INDEX = frozenset({"index"})
_MASK = frozenset({"mask"})
_TARGET = frozenset({"target"})
_CONVOLVED = {
    "stride": (1,),
    "padding": (0,),
    "dilation": (1,),
    "transposed": False,
    "output_padding": (0,),
    "groups": 1,
}
_ROWS = {"input": _X, "index": (3,), "source": (4, 3, 8)}
_POSITIONS = {"input": _X, "index": (4, 3, 8), "src": (4, 3, 8)}
_NORMALISED = {"input": _X, "weight": (6,), "bias": (6,), "running_mean": (6,), "running_var": (6,)}
CALLS: Mapping[str, ExampleCall] = {
    "copy_": ExampleCall({"src": (6, 8)}, {"input": Shape(_X, "input")}),
    "fill_": ExampleCall({"value": ()}, {"input": Shape(_X, "input")}),
    "cross": ExampleCall({"input": (4, 6, 3), "other": (4, 6, 3)}, {"dim": -1}),
    "tensordot": ExampleCall({"a": _X, "b": (6, 8, 10)}, {"dims": 2}),
    "einsum": ExampleCall({"operands0": _X, "operands1": (4, 8, 10)}, {"equation": "bij,bjk->bik"}),
    "fold": ExampleCall(
        {"input": (4, 24, 16)},
        {"output_size": (8, 8), "kernel_size": (2, 2), "dilation": (1, 1), "padding": (0, 0), "stride": (2, 2)},
    ),
    "view_as": ExampleCall({"input": _X}, {"other": Shape((4, 48), "other")}),
    "reshape_as": ExampleCall({"input": _X}, {"other": Shape((4, 48), "other")}),
    "expand_as": ExampleCall({"input": (6, 1)}, {"other": Shape(_X, "other")}),
    "rot90": ExampleCall({"input": _X}, {"k": 1, "dims": (0, 1)}),
    "gather": ExampleCall({"input": _X, "index": (4, 3, 8)}, _ALONG_1, _INDEX),
    "index_select": ExampleCall({"input": _X, "index": (3,)}, _ALONG_1, _INDEX),
    "index_add": ExampleCall(_ROWS, _ALONG_1, _INDEX),
    "index_copy": ExampleCall(_ROWS, _ALONG_1, _INDEX),
    "index_reduce": ExampleCall(_ROWS, {**_ALONG_1, "reduce": "mean"}, _INDEX),
    "index_fill": ExampleCall({"input": _X, "index": (3,), "value": ()}, _ALONG_1, _INDEX),
    "scatter": ExampleCall(_POSITIONS, _ALONG_1, _INDEX),
    "scatter_add": ExampleCall(_POSITIONS, _ALONG_1, _INDEX),
    "scatter_reduce": ExampleCall(_POSITIONS, {**_ALONG_1, "reduce": "sum"}, _INDEX),
    "native_batch_norm": ExampleCall(_NORMALISED, {"training": True}),
    "_native_batch_norm_legit": ExampleCall(_NORMALISED, {"training": True}),
    "fake_quantize_per_channel_affine": ExampleCall({"input": _X, "scale": (6,), "zero_point": (6,)}, {"axis": 1}),
    "unsqueeze": ExampleCall({"input": _X}, {"dim": 1}),
    "unsqueeze_copy": ExampleCall({"input": _X}, {"dim": 1}),
    "take_along_dim": ExampleCall({"input": _X, "indices": (4, 3, 8)}, _ALONG_1, frozenset({"indices"})),
    "tile": ExampleCall({"input": _X}, {"dims": (2, 1, 1)}),
    "where": ExampleCall({"condition": _X, "input": _X, "other": _X}, {}, masks=frozenset({"condition"})),
    "masked_fill": ExampleCall({"input": _X, "mask": _X, "value": ()}, {}, masks=_MASK),
    "masked_scatter": ExampleCall({"input": _X, "mask": _X, "source": _X}, {}, masks=_MASK),
    "view": ExampleCall({"input": _X}, {"shape": (4, 48)}),
    "unflatten": ExampleCall({"input": _X}, {"dim": 2, "sizes": (2, 4)}),
    "expand": ExampleCall({"input": (6, 1)}, {"size": _X}),
    "expand_copy": ExampleCall({"input": (6, 1)}, {"size": _X}),
    "transpose": ExampleCall({"input": _X}, {"dim0": 0, "dim1": 1}),
    "transpose_copy": ExampleCall({"input": _X}, {"dim0": 0, "dim1": 1}),
    "t": ExampleCall({"input": (4, 6)}),
    "t_copy": ExampleCall({"input": (4, 6)}),
    "movedim": ExampleCall({"input": _X}, {"source": 0, "destination": 2}),
    "roll": ExampleCall({"input": _X}, {"shifts": 1, "dims": 1}),
    "narrow": ExampleCall({"input": _X}, {**_ALONG_1, "start": 0, "length": 3}),
    "select": ExampleCall({"input": _X}, {**_ALONG_1, "index": 2}),
    "split": ExampleCall({"input": _X}, {"split_size_or_sections": 3, **_ALONG_1}),
    "chunk": ExampleCall({"input": _X}, {"chunks": 2, **_ALONG_1}),
    "tensor_split": ExampleCall({"input": _X}, {"indices_or_sections": 2, **_ALONG_1}),
    "repeat": ExampleCall({"input": _X}, {"repeats": (2, 1, 1)}),
    "repeat_interleave": ExampleCall({"input": _X}, {"repeats": 2, **_ALONG_1}),
    "pixel_shuffle": ExampleCall({"input": _IMAGES}, {"upscale_factor": 2}),
    "topk": ExampleCall({"input": _X}, {"k": 3, "dim": -1}),
    "kthvalue": ExampleCall({"input": _X}, {"k": 3, "dim": -1}),
    "logsumexp": ExampleCall({"input": _X}, {"dim": -1}),
    "trace": ExampleCall({"input": (6, 6)}),
    "nll_loss": ExampleCall({"input": (6, 8), "target": (6,)}, {}, frozenset({"target"})),
    "group_norm": ExampleCall({"input": _X, "weight": (6,), "bias": (6,)}, {"num_groups": 2}),
    "linalg.inv": ExampleCall({"input": (4, 6, 6)}),
    "linalg.det": ExampleCall({"input": (4, 6, 6)}),
    "linalg.solve": ExampleCall({"A": (4, 6, 6), "B": (4, 6, 8)}),
    "batch_norm": ExampleCall(
        {"input": _X, "weight": (6,), "bias": (6,)}, {"running_mean": None, "running_var": None, "training": True}
    ),
    "instance_norm": ExampleCall({"input": _X, "weight": (6,), "bias": (6,)}, {}),
    "getitem": ExampleCall({"input": _X}, {"index": (slice(None), 2)}),
    "masked_select": ExampleCall({"input": _X, "mask": _X}, {}, masks=_MASK),
    "max_pool1d": ExampleCall({"input": _X}, {"kernel_size": 2}),
    "max_pool3d": ExampleCall({"input": _VOLUMES}, {"kernel_size": 2}),
    "avg_pool1d": ExampleCall({"input": _X}, {"kernel_size": 2}),
    "avg_pool3d": ExampleCall({"input": _VOLUMES}, {"kernel_size": 2}),
    "adaptive_avg_pool1d": ExampleCall({"input": _X}, {"output_size": 4}),
    "adaptive_max_pool2d": ExampleCall({"input": _IMAGES}, {"output_size": (3, 4)}),
    "pixel_unshuffle": ExampleCall({"input": _IMAGES}, {"downscale_factor": 2}),
    "channel_shuffle": ExampleCall({"input": _IMAGES}, {"groups": 2}),
    "quantile": ExampleCall({"input": _X}, {"q": 0.5, "dim": -1}),
    "hsplit": ExampleCall({"input": _X}, {"indices_or_sections": 2}),
    "avg_pool2d": ExampleCall({"input": _IMAGES}, {"kernel_size": 2}),
    "max_pool2d": ExampleCall({"input": _IMAGES}, {"kernel_size": 2}),
    "interpolate": ExampleCall({"input": _IMAGES}, {"scale_factor": 2}),
    "torch.dropout": ExampleCall({"input": _X}, {"p": 0.5, "train": True}),
    "bitwise_and": ExampleCall({"input": _X, "other": _X}, {}, frozenset({"input", "other"})),
    "conv1d": ExampleCall({"input": _X, "weight": (4, 6, 3), "bias": (4,)}),
    "conv2d": ExampleCall({"input": _IMAGES, "weight": (4, 4, 3, 3), "bias": (4,)}),
    "conv3d": ExampleCall({"input": _VOLUMES, "weight": (4, 4, 3, 3, 3), "bias": (4,)}),
    "conv_transpose1d": ExampleCall({"input": _X, "weight": (6, 4, 3), "bias": (4,)}),
    "conv_transpose2d": ExampleCall({"input": _IMAGES, "weight": (4, 6, 3, 3), "bias": (6,)}),
    "conv_transpose3d": ExampleCall({"input": _VOLUMES, "weight": (4, 6, 3, 3, 3), "bias": (6,)}),
    **dict.fromkeys(
        ("convolution", "_convolution"), ExampleCall({"input": _X, "weight": (4, 6, 3), "bias": (4,)}, _CONVOLVED)
    ),
    "conv_tbc": ExampleCall({"input": (8, 4, 6), "weight": (3, 6, 4), "bias": (4,)}, {"pad": 0}),
    "bilinear": ExampleCall({"input1": (4, 6), "input2": (4, 8), "weight": (10, 6, 8), "bias": (10,)}),
    "chain_matmul": ExampleCall({"matrices0": (4, 6), "matrices1": (6, 8)}),
    "linalg.cross": ExampleCall({"input": (4, 6, 3), "other": (4, 6, 3)}),
    "linalg.matrix_power": ExampleCall({"input": (4, 6, 6)}, {"n": 3}),
    "linalg.solve_triangular": ExampleCall({"input": (4, 6, 6), "B": (4, 6, 8)}, {"upper": True}),
    "linalg.householder_product": ExampleCall({"input": (4, 6, 6), "tau": (4, 6)}),
    "linalg.ldl_factor": ExampleCall({"input": (4, 6, 6)}),
    "linalg.ldl_factor_ex": ExampleCall({"input": (4, 6, 6)}),
    "geqrf": ExampleCall({"input": (4, 6, 6)}),
    "ormqr": ExampleCall({"input": (6, 6), "tau": (6,), "other": (6, 8)}),
    "cov": ExampleCall({"input": (6, 8)}),
    "corrcoef": ExampleCall({"input": (6, 8)}),
    "diag": ExampleCall({"input": (6, 6)}),
    "block_diag": ExampleCall({"tensors0": (4, 6), "tensors1": (6, 8)}),
    "cartesian_prod": ExampleCall({"tensors0": (4,), "tensors1": (6,)}),
    "broadcast_tensors": ExampleCall({"tensors0": _X, "tensors1": (8,)}),
    "combinations": ExampleCall({"input": (6,)}, {"r": 2}),
    "bincount": ExampleCall({"input": (6,)}, {}, frozenset({"input"})),
    "histogram": ExampleCall({"input": (6,)}, {"bins": 4}),
    "nanquantile": ExampleCall({"input": _X}, {"q": 0.5, "dim": -1}),
    "renorm": ExampleCall({"input": _X}, {"p": 2, "dim": 1, "maxnorm": 1.0}),
    "masked.normalize": ExampleCall({"input": _X}, {"ord": 2.0, "dim": 1}),
    "frobenius_norm": ExampleCall({"input": _X}, {"dim": (-1,)}),
    **dict.fromkeys(("_softmax", "_log_softmax"), ExampleCall({"input": _X}, {"dim": -1, "half_to_float": False})),
    **dict.fromkeys(
        ("_softmax_backward_data", "_log_softmax_backward_data"),
        ExampleCall({"grad_output": _X, "output": _X}, {"dim": -1, "input_dtype": torch.float32}),
    ),
    "sum_to_size": ExampleCall({"input": _X}, {"size": (6, 1)}),
    "broadcast_to": ExampleCall({"input": (6, 1)}, {"size": _X}),
    "polygamma": ExampleCall({"input": _X}, {"n": 1}),
    "special.polygamma": ExampleCall({"input": _X}, {"n": 1}),
    "mvlgamma": ExampleCall({"input": _X}, {"p": 1}),
    **dict.fromkeys(("threshold", "_threshold"), ExampleCall({"input": _X}, {"threshold": 1.0, "value": 0.0})),
    **dict.fromkeys(
        ("gcd", "lcm", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"),
        ExampleCall({"input": _X, "other": _X}, {}, frozenset({"input", "other"})),
    ),
    "floor_divide": ExampleCall({"input": _X, "other": _X}),
    "heaviside": ExampleCall({"input": _X, "values": _X}),
    "type_as": ExampleCall({"input": _X}, {"other": Shape(_X, "other")}),
    "type": ExampleCall({"input": _X}, {"dtype": torch.float64}),
    "_to_copy": ExampleCall({"input": _X}, {"dtype": torch.float64}),
    "upsample": ExampleCall({"input": _IMAGES}, {"scale_factor": 2}),
    "upsample_nearest": ExampleCall({"input": _IMAGES}, {"scale_factor": 2}),
    "upsample_bilinear": ExampleCall({"input": _IMAGES}, {"scale_factor": 2}),
    **dict.fromkeys(
        ("upsample_nearest1d", "_upsample_nearest_exact1d"),
        ExampleCall({"input": _X}, {"output_size": (16,)}),
    ),
    **dict.fromkeys(
        ("upsample_nearest2d", "_upsample_nearest_exact2d"),
        ExampleCall({"input": _IMAGES}, {"output_size": (12, 16)}),
    ),
    **dict.fromkeys(
        ("upsample_nearest3d", "_upsample_nearest_exact3d"),
        ExampleCall({"input": _VOLUMES}, {"output_size": (12, 16, 20)}),
    ),
    "upsample_linear1d": ExampleCall({"input": _X}, {"output_size": (16,), "align_corners": False}),
    **dict.fromkeys(
        ("upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        ExampleCall({"input": _IMAGES}, {"output_size": (12, 16), "align_corners": False}),
    ),
    "upsample_trilinear3d": ExampleCall({"input": _VOLUMES}, {"output_size": (12, 16, 20), "align_corners": False}),
    **dict.fromkeys(("reflection_pad1d", "replication_pad1d"), ExampleCall({"input": _X}, {"padding": (1, 1)})),
    **dict.fromkeys(
        ("reflection_pad2d", "replication_pad2d"), ExampleCall({"input": _IMAGES}, {"padding": (1, 1, 1, 1)})
    ),
    **dict.fromkeys(
        ("reflection_pad3d", "replication_pad3d"), ExampleCall({"input": _VOLUMES}, {"padding": (1, 1, 1, 1, 1, 1)})
    ),
    "_pad_circular": ExampleCall({"input": _X}, {"pad": (1, 1)}),
    **dict.fromkeys(
        ("adaptive_avg_pool2d", "_adaptive_avg_pool2d"), ExampleCall({"input": _IMAGES}, {"output_size": (3, 4)})
    ),
    **dict.fromkeys(
        ("adaptive_avg_pool3d", "_adaptive_avg_pool3d", "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices"),
        ExampleCall({"input": _VOLUMES}, {"output_size": (3, 4, 5)}),
    ),
    **dict.fromkeys(
        ("adaptive_max_pool1d", "adaptive_max_pool1d_with_indices"), ExampleCall({"input": _X}, {"output_size": 4})
    ),
    "adaptive_max_pool2d_with_indices": ExampleCall({"input": _IMAGES}, {"output_size": (3, 4)}),
    "max_pool1d_with_indices": ExampleCall({"input": _X}, {"kernel_size": 2}),
    "max_pool2d_with_indices": ExampleCall({"input": _IMAGES}, {"kernel_size": 2}),
    "max_pool3d_with_indices": ExampleCall({"input": _VOLUMES}, {"kernel_size": 2}),
    "lp_pool1d": ExampleCall({"input": _X}, {"norm_type": 2.0, "kernel_size": 2}),
    "lp_pool2d": ExampleCall({"input": _IMAGES}, {"norm_type": 2.0, "kernel_size": 2}),
    "lp_pool3d": ExampleCall({"input": _VOLUMES}, {"norm_type": 2.0, "kernel_size": 2}),
    **dict.fromkeys(
        ("fractional_max_pool2d", "fractional_max_pool2d_with_indices"),
        ExampleCall({"input": _IMAGES}, {"kernel_size": 2, "output_size": (3, 4)}),
    ),
    **dict.fromkeys(
        ("fractional_max_pool3d", "fractional_max_pool3d_with_indices"),
        ExampleCall({"input": _VOLUMES}, {"kernel_size": 2, "output_size": (3, 4, 5)}),
    ),
    "max_unpool1d": ExampleCall({"input": _X, "indices": _X}, {"kernel_size": 2}, frozenset({"indices"})),
    "max_unpool2d": ExampleCall({"input": _IMAGES, "indices": _IMAGES}, {"kernel_size": 2}, frozenset({"indices"})),
    "max_unpool3d": ExampleCall({"input": _VOLUMES, "indices": _VOLUMES}, {"kernel_size": 2}, frozenset({"indices"})),
    "grid_sample": ExampleCall({"input": _IMAGES, "grid": (2, 6, 8, 2)}, {"align_corners": False}),
    "affine_grid": ExampleCall({"theta": (2, 2, 3)}, {"size": (2, 4, 6, 8), "align_corners": False}),
    "local_response_norm": ExampleCall({"input": _X}, {"size": 2}),
    "native_layer_norm": ExampleCall(
        {"input": _X, "weight": (8,), "bias": (8,)}, {"normalized_shape": (8,), "eps": 1e-5}
    ),
    "native_group_norm": ExampleCall(
        {"input": _X, "weight": (6,), "bias": (6,)}, {"N": 4, "C": 6, "HxW": 8, "group": 2, "eps": 1e-5}
    ),
    "_fused_rms_norm": ExampleCall({"input": _X, "weight": (8,)}, {"normalized_shape": (8,), "eps": 1e-5}),
    "torch.batch_norm": ExampleCall(
        {"input": _X, "weight": (6,), "bias": (6,)},
        {
            "running_mean": None,
            "running_var": None,
            "training": True,
            "momentum": 0.1,
            "eps": 1e-5,
            "cudnn_enabled": False,
        },
    ),
    "torch.instance_norm": ExampleCall(
        {"input": _X, "weight": (6,), "bias": (6,)},
        {
            "running_mean": None,
            "running_var": None,
            "use_input_stats": True,
            "momentum": 0.1,
            "eps": 1e-5,
            "cudnn_enabled": False,
        },
    ),
    **dict.fromkeys(("unsafe_chunk",), ExampleCall({"input": _X}, {"chunks": 2, **_ALONG_1})),
    "split_with_sizes": ExampleCall({"input": _X}, {"split_size_or_sections": (3, 3), **_ALONG_1}),
    "unsafe_split": ExampleCall({"input": _X}, {"split_size_or_sections": 3, **_ALONG_1}),
    "unsafe_split_with_sizes": ExampleCall({"input": _X}, {"split_size_or_sections": (3, 3), **_ALONG_1}),
    "split_copy": ExampleCall({"input": _X}, {"split_size": 3, **_ALONG_1}),
    "split_with_sizes_copy": ExampleCall({"input": _X}, {"split_sizes": (3, 3), **_ALONG_1}),
    "vsplit": ExampleCall({"input": _X}, {"indices_or_sections": 2}),
    "dsplit": ExampleCall({"input": _X}, {"indices_or_sections": 2}),
    "narrow_copy": ExampleCall({"input": _X}, {**_ALONG_1, "start": 0, "length": 3}),
    "select_copy": ExampleCall({"input": _X}, {**_ALONG_1, "index": 2}),
    "slice": ExampleCall({"input": _X}, {**_ALONG_1, "start": 0, "end": 3, "step": 1}),
    "unfold": ExampleCall({"input": _X}, {"dimension": 2, "size": 2, "step": 2}),
    "unfold_copy": ExampleCall({"input": _X}, {"dimension": 2, "size": 2, "step": 2}),
    "as_strided": ExampleCall({"input": _X}, {"size": (6, 8), "stride": (8, 1)}),
    "as_strided_copy": ExampleCall({"input": _X}, {"size": (6, 8), "stride": (8, 1)}),
    "diagonal_scatter": ExampleCall({"input": (6, 6), "src": (6,)}),
    "select_scatter": ExampleCall({"input": _X, "src": (4, 8)}, {**_ALONG_1, "index": 2}),
    "fill_diagonal_": ExampleCall({"input": (6, 6)}, {"fill_value": 1.0}),
    "setitem": ExampleCall({"input": _X, "value": (4, 8)}, {"index": (slice(None), 2)}),
    "index": ExampleCall({"input": _X, "indices0": (3,)}, {}, frozenset({"indices0"})),
    "index_put": ExampleCall({"input": _X, "indices0": (3,), "values": (3, 6, 8)}, {}, frozenset({"indices0"})),
    "copy": ExampleCall({"src": (6, 8)}, {"input": Shape(_X, "input")}),
    "fill": ExampleCall({"value": ()}, {"input": Shape(_X, "input")}),
    "multinomial": ExampleCall({"input": (4, 6)}, {"num_samples": 2}),
    "binomial": ExampleCall({"input": _X, "prob": _X}),
    "_sample_dirichlet": ExampleCall({"input": _X}),
    **dict.fromkeys(
        ("feature_dropout", "torch.alpha_dropout", "torch.feature_alpha_dropout", "native_dropout"),
        ExampleCall({"input": _X}, {"p": 0.5, "train": True}),
    ),
    "cosine_embedding_loss": ExampleCall({"input1": (6, 8), "input2": (6, 8), "target": (6,)}),
    "multilabel_margin_loss": ExampleCall({"input": (6, 8), "target": (6, 8)}, {}, _TARGET),
    "multi_margin_loss": ExampleCall({"input": (6, 8), "target": (6,)}, {}, _TARGET),
    "cross_entropy": ExampleCall({"input": (6, 8), "target": (6,)}, {}, _TARGET),
    "cross_entropy_loss": ExampleCall({"input": (6, 8), "target": (6,)}, {}, _TARGET),
    "nll_loss_nd": ExampleCall({"input": (6, 8), "target": (6,)}, {}, _TARGET),
    "nll_loss2d": ExampleCall({"input": (2, 4, 6, 8), "target": (2, 6, 8)}, {}, _TARGET),
    "ctc_loss": ExampleCall(
        {"log_probs": (8, 4, 6), "targets": (4, 3)},
        {"input_lengths": (8, 8, 8, 8), "target_lengths": (3, 3, 3, 3)},
        frozenset({"targets"}),
    ),
    "stft": ExampleCall({"input": (4, 64)}, {"n_fft": 16, "return_complex": True}),
    **dict.fromkeys(
        ("rnn_tanh_cell", "rnn_relu_cell"),
        ExampleCall({"input": (4, 6), "hx": (4, 8), "w_ih": (8, 6), "w_hh": (8, 8), "b_ih": (8,), "b_hh": (8,)}),
    ),
    "gru_cell": ExampleCall(
        {"input": (4, 6), "hx": (4, 8), "w_ih": (24, 6), "w_hh": (24, 8), "b_ih": (24,), "b_hh": (24,)}
    ),
    **dict.fromkeys(("T", "H", "numpy_T", "matrix_H"), ExampleCall({"input": (4, 6)})),
}
