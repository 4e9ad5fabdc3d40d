"""Sliding windows in global mode: what the rules say of every sharding is what the numbers say, and all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .agreement import assert_agreement, randn
from .global_ruleset import differences

Shapes = tuple[tuple[int, ...], ...]
aten = torch.ops.aten

CONVOLUTIONS: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "conv1d": (F.conv1d, ((4, 5, 4), (2, 5, 2))),
    "conv1d bias": (F.conv1d, ((4, 5, 4), (2, 5, 2), (2,))),
    "conv1d one": (F.conv1d, ((5, 4), (2, 5, 2))),
    "conv1d by name": (lambda x, b, w: F.conv1d(x, bias=b, weight=w), ((4, 5, 4), (2,), (2, 5, 2))),
    "conv1d pointwise": (F.conv1d, ((4, 5, 4), (2, 5, 1))),
    "conv1d pointwise strided": (lambda x, w: F.conv1d(x, w, stride=2), ((4, 5, 5), (2, 5, 1))),
    "conv1d pointwise padded": (lambda x, w: F.conv1d(x, w, padding=1), ((4, 5, 5), (2, 5, 1))),
    "conv1d same": (lambda x, w: F.conv1d(x, w, padding="same"), ((4, 5, 4), (2, 5, 2))),
    "conv1d depthwise": (lambda x, w: F.conv1d(x, w, groups=x.shape[1]), ((4, 5, 4), (5, 1, 2))),
    "conv1d depthwise bias": (lambda x, w, b: F.conv1d(x, w, b, groups=x.shape[1]), ((2, 5, 4), (5, 1, 2), (5,))),
    "conv2d": (F.conv2d, ((2, 4, 4, 5), (2, 4, 2, 2))),
    "conv2d rows": (lambda x, w: F.conv2d(x, w, stride=(1, 2)), ((2, 4, 4, 5), (2, 4, 1, 2))),
    "conv3d": (F.conv3d, ((2, 2, 4, 4, 4), (4, 2, 2, 2, 2))),
    "conv_transpose1d": (F.conv_transpose1d, ((4, 5, 4), (5, 2, 2))),
    "conv_transpose1d bias": (F.conv_transpose1d, ((4, 5, 4), (5, 2, 2), (2,))),
    "conv_transpose2d": (F.conv_transpose2d, ((2, 4, 4, 5), (4, 2, 2, 2))),
    "conv_transpose2d one": (F.conv_transpose2d, ((4, 4, 5), (4, 2, 2, 2))),
    "conv_tbc": (torch.conv_tbc, ((4, 2, 5), (2, 5, 4), (4,))),
    "convolution": (
        lambda x, w: torch.convolution(x, w, None, [1], [0], [1], False, [0], 1),
        ((4, 5, 4), (2, 5, 2)),
    ),
    "convolution transposed": (
        lambda x, w: torch.convolution(x, w, None, [1], [0], [1], True, [0], 1),
        ((4, 5, 4), (5, 2, 2)),
    ),
}

POOLS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), (4, 5, 4)),
    "avg_pool2d one": (lambda x: F.avg_pool2d(x, 2), (5, 4, 4)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (4, 5, 4, 4)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (2, 4, 4, 4, 4)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 2), (4, 5, 4)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), (4, 5, 4, 4)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 2), (2, 4, 4, 4, 4)),
    "adaptive_avg_pool2d half": (lambda x: F.adaptive_avg_pool2d(x, (None, 2)), (2, 4, 4, 4)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (4, 5, 4)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (4, 5, 4, 4)),
    "max_pool2d indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), (4, 5, 4, 4)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (2, 4, 4, 4, 4)),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 2), (4, 5, 4)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True), (2, 4, 4, 4)),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 2), (2, 4, 4, 4, 4)),
    "lp_pool1d": (lambda x: F.lp_pool1d(x, 2.0, 2), (4, 5, 4)),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2.0, 2), (4, 5, 4, 4)),
    "interpolate nearest": (lambda x: F.interpolate(x, scale_factor=2), (4, 5, 4)),
    "interpolate twice and thrice": (lambda x: F.interpolate(x, scale_factor=(2, 3), mode="nearest"), (2, 4, 4, 5)),
    "upsample_bilinear": (lambda x: F.upsample_bilinear(x, scale_factor=2), (2, 4, 4, 4)),
    "interpolate linear": (lambda x: F.interpolate(x, size=7, mode="linear"), (4, 5, 4)),
    "interpolate bilinear": (lambda x: F.interpolate(x, size=(7, 7), mode="bilinear"), (4, 5, 4, 4)),
    "upsample": (lambda x: F.upsample(x, scale_factor=2), (4, 5, 4)),
    "upsample_nearest2d": (lambda x: aten.upsample_nearest2d(x, [8, 8]), (4, 5, 4, 4)),
    "affine_grid": (lambda x: F.affine_grid(x, [x.shape[0], 1, 4, 5]), (4, 2, 3)),
    "affine_grid in space": (lambda x: F.affine_grid(x, [x.shape[0], 1, 4, 5, 2]), (4, 3, 4)),
    "reflection_pad1d": (lambda x: aten.reflection_pad1d(x, [1, 1]), (4, 5, 4)),
    "replication_pad2d": (lambda x: aten.replication_pad2d(x, [1, 1, 1, 1]), (4, 5, 4, 4)),
    "fold": (lambda x: F.fold(x, (4, 4), 2), (5, 4, 9)),
}


def unpool(x: torch.Tensor) -> torch.Tensor:
    return F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_sums_channels_and_keeps_the_batch(name: str) -> None:
    fn, shapes = CONVOLUTIONS[name]
    assert_agreement(fn, randn(*shapes), at_least=5)


@pytest.mark.parametrize("name", POOLS)
def test_windows_keep_batch_and_channels(name: str) -> None:
    fn, shape = POOLS[name]
    assert_agreement(fn, randn(shape))


def test_positions_of_an_adaptive_maximum_count_over_all_spatial_dims() -> None:
    assert_agreement(lambda x: F.adaptive_max_pool2d(x, (2, None), return_indices=True), randn((2, 4, 4, 4)))


def test_unpooling_keeps_batch_and_channels() -> None:
    assert_agreement(unpool, randn((4, 5, 4)), at_least=3)


@pytest.mark.parametrize("shapes", [((2, 4, 4, 4), (2, 5, 5, 2)), ((2, 2, 2, 4, 4), (2, 4, 2, 2, 3))])
def test_samples_are_placed_as_their_grid(shapes: Shapes) -> None:
    assert_agreement(lambda x, g: F.grid_sample(x, g, align_corners=False), randn(*shapes), at_least=5)


def test_windows_that_are_drawn_per_channel() -> None:
    def pool(x: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        return F.fractional_max_pool2d(x, 2, 2, _random_samples=samples.detach())

    tensors = [*randn((4, 5, 4, 4)), torch.rand(4, 5, 2, dtype=torch.float64)]
    report = differences(pool, *tensors)
    assert not report.wrong, "\n".join(map(str, report.wrong))
    assert report.covered == 2  # batch and channels; samples that all ranks share are drawn, as far as the rules know


def test_channels_in_blocks_are_folded_where_shards_are_even() -> None:
    assert_agreement(lambda x: F.fold(x, (4, 4), 2), randn((5, 16, 9)), sizes=(2,), at_least=4)


def test_groups_of_several_channels_need_shards_of_whole_groups() -> None:
    fn = lambda x, w: F.conv1d(x, w, groups=x.shape[1] // 2)  # noqa: E731
    assert_agreement(fn, randn((2, 8, 4), (4, 2, 2)), sizes=(2,), at_least=4)
