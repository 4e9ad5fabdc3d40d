"""Calls of the linear operators behind neural network layers, transforms and solvers."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .cases import case as c
from .cases import complexes, definite, fixed, lower, positive, real

A = real(2, 3)
IMAGE = real(1, 2, 4, 4)
PIVOTS = fixed([1, 2, 3], torch.int32)

CONVOLUTION = [
    c("conv1d", F.conv1d, real(1, 2, 5), real(3, 2, 2)),
    c("conv1d", F.conv1d, real(1, 2, 5), real(3, 2, 2), real(3), padding=1),
    c("conv2d", F.conv2d, IMAGE, real(3, 2, 2, 2), real(3)),
    c("conv3d", F.conv3d, real(1, 1, 3, 3, 3), real(2, 1, 2, 2, 2), real(2)),
    c("conv_transpose1d", F.conv_transpose1d, real(1, 2, 4), real(2, 3, 2), real(3), stride=2),
    c("conv_transpose2d", F.conv_transpose2d, real(1, 2, 3, 3), real(2, 1, 2, 2), real(1)),
    c("conv_transpose3d", F.conv_transpose3d, real(1, 1, 2, 2, 2), real(1, 1, 2, 2, 2)),
    c("conv_tbc", F.conv_tbc, real(4, 1, 2), real(2, 2, 3), real(3)),
    c("convolution", torch.convolution, real(1, 2, 5), real(3, 2, 2), real(3), [1], [0], [1], False, [0], 1),
    c("avg_pool1d", F.avg_pool1d, real(1, 2, 4), 2),
    c("avg_pool2d", F.avg_pool2d, IMAGE, 2),
    c("avg_pool3d", F.avg_pool3d, real(1, 1, 2, 2, 2), 2),
    c("adaptive_avg_pool1d", F.adaptive_avg_pool1d, real(1, 2, 5), 2),
    c("adaptive_avg_pool2d", F.adaptive_avg_pool2d, IMAGE, 3),
    c("adaptive_avg_pool3d", F.adaptive_avg_pool3d, real(1, 1, 3, 3, 3), 2),
    c("unfold", F.unfold, IMAGE, 2),
    c("fold", F.fold, real(1, 4, 9), (4, 4), 2),
    *(
        c("interpolate", F.interpolate, x, scale_factor=2.0, mode=mode)
        for x, mode in [
            (real(1, 1, 4), "nearest"),
            (real(1, 1, 4), "linear"),
            (IMAGE, "bilinear"),
            (IMAGE, "bicubic"),
            (IMAGE, "area"),
            (IMAGE, "nearest-exact"),
            (real(1, 1, 2, 2, 2), "trilinear"),
        ]
    ),
    c("_adaptive_avg_pool2d", torch.ops.aten._adaptive_avg_pool2d, IMAGE, (3, 3)),
    c("_adaptive_avg_pool3d", torch.ops.aten._adaptive_avg_pool3d, real(1, 1, 2, 2, 2), (1, 2, 1)),
    *(
        c(f"upsample_{mode}", getattr(torch.ops.aten, f"upsample_{mode}").vec, x, None, *align, [2.0] * (x_dims))
        for mode, x, align, x_dims in [
            ("nearest1d", real(1, 1, 4), [], 1),
            ("nearest2d", IMAGE, [], 2),
            ("nearest3d", real(1, 1, 2, 2, 2), [], 3),
            ("linear1d", real(1, 1, 4), [False], 1),
            ("bilinear2d", IMAGE, [False], 2),
            ("trilinear3d", real(1, 1, 2, 2, 2), [False], 3),
            ("bicubic2d", IMAGE, [False], 2),
        ]
    ),
    c("_upsample_bilinear2d_aa", torch.ops.aten._upsample_bilinear2d_aa.vec, IMAGE, None, False, [2.0, 2.0]),
    c("_upsample_bicubic2d_aa", torch.ops.aten._upsample_bicubic2d_aa.vec, IMAGE, None, False, [2.0, 2.0]),
    c("_upsample_nearest_exact1d", torch.ops.aten._upsample_nearest_exact1d.vec, real(1, 1, 4), None, [2.0]),
    c("_upsample_nearest_exact2d", torch.ops.aten._upsample_nearest_exact2d.vec, IMAGE, None, [2.0, 2.0]),
    c("_upsample_nearest_exact3d", torch.ops.aten._upsample_nearest_exact3d.vec, real(1, 1, 2, 2, 2), None, [2.0] * 3),
    *(
        c(f"{kind}_pad{dims}d", getattr(torch.ops.aten, f"{kind}_pad{dims}d"), real(1, *[3] * dims), [1, 1] * dims)
        for kind in ("reflection", "replication")
        for dims in (1, 2, 3)
    ),
    c("_pad_circular", torch.ops.aten._pad_circular, real(1, 1, 3), [1, 1]),
    c("upsample", F.interpolate, real(1, 1, 4), scale_factor=2.0),
    c("upsample_bilinear", F.upsample_bilinear, real(1, 1, 2, 2), scale_factor=2),
    c("grid_sample", lambda *a: F.grid_sample(*a, align_corners=False), IMAGE, real(1, 2, 2, 2)),
    c("affine_grid", lambda *a: F.affine_grid(*a, align_corners=False), real(1, 2, 3), (1, 1, 2, 2)),
    c("pad", F.pad, A, (1, 1)),
    c("pad", F.pad, A, (1, 1), "constant", 0.0),
    c("pad", F.pad, A, (1, 1), value=2.0),
    c("pad", F.pad, A, (1, 1), mode="reflect"),
    c("pad", F.pad, A, (1, 1), mode="circular"),
    c("constant_pad_nd", torch.constant_pad_nd, A, (1, 1)),
    c("constant_pad_nd", torch.constant_pad_nd, A, (1, 1), 1.0),
]
WEIGHT, MEAN, VARIANCE = real(3), real(3), positive(3)
# torch refuses to differentiate by the running statistics.
FIXED = {"differentiable": False}
NORMALISATION = [
    c("layer_norm", F.layer_norm, A, (3,), WEIGHT, real(3)),
    c("layer_norm", F.layer_norm, A, (3,), WEIGHT),
    c("layer_norm", F.layer_norm, A, (3,), None, real(3)),
    c("native_layer_norm", torch.native_layer_norm, A, (3,), WEIGHT, real(3), 1e-5),
    c("native_layer_norm", torch.native_layer_norm, A, (3,), None, real(3), 1e-5),
    c("_fused_rms_norm", torch.ops.aten._fused_rms_norm, A, (3,), WEIGHT, 1e-5),
    c("native_group_norm", torch.native_group_norm, real(2, 4, 2), real(4), real(4), 2, 4, 2, 2, 1e-5),
    c("group_norm", F.group_norm, real(2, 4, 2), 2, real(4), real(4)),
    c("group_norm", F.group_norm, real(2, 4, 2), 2, bias=real(4), differentiable=False),
    c("rms_norm", F.rms_norm, A, (3,), WEIGHT),
    c("rms_norm", F.rms_norm, A, (3,)),
    c("batch_norm", F.batch_norm, A, MEAN, VARIANCE, WEIGHT, real(3), **FIXED),
    c("batch_norm", F.batch_norm, A, MEAN, VARIANCE, None, real(3), **FIXED),
    c("batch_norm", F.batch_norm, A, MEAN, VARIANCE, WEIGHT, **FIXED),
    c("batch_norm", F.batch_norm, real(4, 3), None, None, WEIGHT, training=True),
    c("torch.batch_norm", torch.batch_norm, A, WEIGHT, real(3), MEAN, VARIANCE, False, 0.1, 1e-5, False, **FIXED),
    c("instance_norm", F.instance_norm, real(2, 3, 4), weight=WEIGHT, bias=real(3)),
    c(
        "instance_norm",
        F.instance_norm,
        *(real(2, 3, 4), MEAN, VARIANCE, WEIGHT, real(3), False),
        note="fixed",
        **FIXED,
    ),
    c(
        "torch.instance_norm",
        torch.instance_norm,
        *(real(2, 3, 4), WEIGHT, real(3), MEAN, VARIANCE, False, 0.1, 1e-5, False),
        **FIXED,
    ),
]
FOURIER = [
    *(c(f"fft.{op}", getattr(torch.fft, op), complexes(2, 4)) for op in ("fft", "ifft", "hfft", "irfft")),
    *(c(f"fft.{op}", getattr(torch.fft, op), real(2, 4)) for op in ("rfft", "ihfft", "fft")),
    *(
        c(f"fft.{op}{many}", getattr(torch.fft, op + many), complexes(2, 4))
        for op in ("fft", "ifft", "hfft", "irfft")
        for many in ("2", "n")
    ),
    *(
        c(f"fft.{op}{many}", getattr(torch.fft, op + many), real(2, 4))
        for op in ("rfft", "ihfft")
        for many in ("2", "n")
    ),
    c("fft.fftshift", torch.fft.fftshift, A),
    c("fft.ifftshift", torch.fft.ifftshift, A),
    c("_fft_c2c", torch.ops.aten._fft_c2c, complexes(2, 4), [1], 0, True),
    c("_fft_c2r", torch.ops.aten._fft_c2r, complexes(2, 3), [1], 0, 4),
    c("_fft_r2c", torch.ops.aten._fft_r2c, real(2, 4), [1], 0, True),
    c("stft", lambda *a: torch.stft(*a, return_complex=True), real(8), 4, 2, 4, positive(4)),
    c("stft", lambda *a: torch.stft(*a, return_complex=True), real(8), 4, 2, 4),
    c("istft", torch.istft, complexes(3, 5), 4, 2, 4, positive(4)),
]
SOLVERS = [
    c("linalg.solve", torch.linalg.solve, definite(3), real(3, 2)),
    c("linalg.solve_ex", torch.linalg.solve_ex, definite(3), real(3, 2)),
    c("linalg.lstsq", lambda a, b: torch.linalg.lstsq(a, b)[0], definite(3), real(3, 2), note="solution"),
    c("linalg.lstsq", lambda a, b: torch.linalg.lstsq(a, b, driver="gelsd"), real(5, 3), real(5, 2), note="residuals"),
    c("triangular_solve", torch.triangular_solve, real(3, 2), lower(3)),
    c("linalg.solve_triangular", lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), lower(3), real(3, 2)),
    c("linalg.tensorsolve", torch.linalg.tensorsolve, definite(3), real(3)),
    c("linalg.lu_solve", torch.linalg.lu_solve, definite(3), PIVOTS, real(3, 2)),
    c("linalg.ldl_solve", torch.linalg.ldl_solve, lower(3), PIVOTS, real(3, 2), differentiable=False),
    c("lu_solve", torch.lu_solve, real(3, 2), definite(3), PIVOTS),
    c("cholesky_solve", torch.cholesky_solve, real(3, 2), lower(3)),
    c("ormqr", lambda a, tau, other: torch.ormqr(a.detach(), tau.detach(), other), real(3, 3), positive(3), real(3, 2)),
]
RANDOM_AT_REST = [
    c("dropout", F.dropout, A, 0.5, False),
    c("dropout", F.dropout, A, p=0.0),
    c("dropout1d", F.dropout1d, real(2, 3, 4), training=False),
    c("dropout2d", F.dropout2d, IMAGE, training=False),
    c("dropout3d", F.dropout3d, real(1, 2, 2, 2, 2), training=False),
    c("feature_dropout", torch.feature_dropout, A, 0.5, False),
    c("torch.dropout", torch.dropout, A, 0.5, False),
    c("native_dropout", torch.native_dropout, A, 0.5, False),
    c("alpha_dropout", F.alpha_dropout, A),
    c("feature_alpha_dropout", F.feature_alpha_dropout, IMAGE),
    c("torch.alpha_dropout", torch.alpha_dropout, A, 0.5, False),
    c("torch.feature_alpha_dropout", torch.feature_alpha_dropout, A, 0.5, False),
    c("scaled_dot_product_attention", F.scaled_dot_product_attention, real(1, 2, 3), real(1, 2, 3), real(1, 2, 3)),
    c(
        "scaled_dot_product_attention", F.scaled_dot_product_attention,
        real(1, 2, 3), real(1, 2, 3), real(1, 2, 3), real(2, 2),
    ),
    c(
        "scaled_dot_product_attention", F.scaled_dot_product_attention,
        real(1, 2, 3), real(1, 2, 3), real(1, 2, 3), is_causal=True,
    ),
]  # fmt: skip
FACTORIES = [
    c("linspace", torch.linspace, real(), real(), 4, dtype=torch.float64, differentiable=False),
    c("linspace", torch.linspace, 0.0, real(), 4, dtype=torch.float64, differentiable=False),
    c("full", torch.full, (2,), real(), differentiable=False),
    c("constant_", torch.nn.init.constant_, A, real(), differentiable=False),
    c("new_tensor", lambda x, v: x.new_tensor(v.detach()), A, real(3), differentiable=False),
    c("full_like", lambda x, v: torch.full_like(x, v), A, 2.0),
    c("tensor", lambda x: x.clone(), A),
    c("as_tensor", torch.as_tensor, A),
    c("asarray", torch.asarray, A),
    c("zeros_like", torch.zeros_like, A),
    c("ones_like", torch.ones_like, A),
    c("new_zeros", torch.Tensor.new_zeros, A, (2,)),
    c("new_ones", torch.Tensor.new_ones, A, (2,)),
    c("new_full", torch.Tensor.new_full, A, (2,), 3.0),
]
