"""Calls for the pages of operators whose dims depend on arguments: sizes of tensors, and what else is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardwise.op_rules.propagation.dim_labels import Shape


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


_ALONG_1 = {"dim": 1}
_X = (4, 6, 8)
_IMAGES = (2, 4, 6, 8)
_VOLUMES = (2, 4, 6, 8, 10)
_INDEX = frozenset({"index"})
_MASK = frozenset({"mask"})
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
    "adaptive_avg_pool2d": ExampleCall({"input": _IMAGES}, {"output_size": (3, 4)}),
    "interpolate": ExampleCall({"input": _IMAGES}, {"scale_factor": 2}),
    "torch.dropout": ExampleCall({"input": _X}, {"p": 0.5, "train": True}),
    "bitwise_and": ExampleCall({"input": _X, "other": _X}, {}, frozenset({"input", "other"})),
}
