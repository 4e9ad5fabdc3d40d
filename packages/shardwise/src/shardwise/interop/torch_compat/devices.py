"""Devices that are not there: where torch refuses on the CPU what it does elsewhere."""

from __future__ import annotations

from .registry import patch_point

FLEX_DEVICE = patch_point(
    "torch.nn.attention.flex_attention._validate_device",
    purpose="refuses the backward of flex attention on the CPU, which stands in for the device that the script names",
    lost="flex attention in scripts for GPUs",
    tier=2,
)

SYNCED_BATCH_NORM_DEVICE = patch_point(
    "torch.nn.parallel.DistributedDataParallel._passing_sync_batchnorm_handle",
    purpose="refuses SyncBatchNorm on the CPU, which stands in for the device that the script names",
    lost="SyncBatchNorm under DistributedDataParallel in scripts for GPUs",
    tier=2,
)
