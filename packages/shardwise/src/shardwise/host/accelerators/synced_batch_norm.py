"""``torch.nn.SyncBatchNorm`` on the CPU, for which torch has no kernels.

The moments are those of the samples of all ranks: counts, sums and squared deviations are summed over the group, and in
backward the two sums over samples that the gradient of the input needs. Gradients of weight and bias are this rank's
terms, as torch's own function leaves them to a wrapper to sum.
Source: Ioffe and Szegedy 2015, algorithm 1, its moments and the sums of its gradient over the batches of all ranks.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.distributed import ProcessGroup


def forward(module: torch.nn.SyncBatchNorm, x: Tensor) -> Tensor:
    """What the module gives for ``x`` [samples, channels, ...]: with one rank plain batch normalisation."""
    group = module.process_group if module.process_group is not None else dist.group.WORLD
    if not module.training or not dist.is_initialized() or dist.get_world_size(group) == 1:
        plain: Tensor = torch.nn.BatchNorm1d.forward(module, x)
        return plain
    weight = module.momentum
    if module.num_batches_tracked is not None:
        module.num_batches_tracked.add_(1)
        weight = 1 / module.num_batches_tracked.item() if weight is None else weight
    normalised: Tensor = SyncedBatchNorm.apply(  # type: ignore[no-untyped-call]
        x, module.weight, module.bias, module.running_mean, module.running_var, module.eps, weight, group
    )
    return normalised


class SyncedBatchNorm(torch.autograd.Function):
    """Batch normalisation over the samples of every rank of a group. Dims: N samples, C channels, the rest places."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        eps: float,
        momentum: float,
        group: ProcessGroup,
    ) -> Tensor:
        x_CM = _by_channel(x)
        count = _summed(x_CM.new_tensor([x_CM.shape[1]]), group)
        mean_C = _summed(x_CM.sum(1), group) / count
        deviation_CM = x_CM - mean_C[:, None]
        variance_C = _summed(deviation_CM.square().sum(1), group) / count
        scale_C = (variance_C + eps).rsqrt()
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean_C.to(running_mean.dtype), momentum)
            running_var.lerp_((variance_C * count / (count - 1)).to(running_var.dtype), momentum)
        normal_CM = deviation_CM * scale_C[:, None]
        ctx.group = group  # type: ignore[attr-defined]
        ctx.save_for_backward(normal_CM, scale_C, count, weight)  # type: ignore[arg-type]
        if weight is not None and bias is not None:
            normal_CM = normal_CM * weight[:, None] + bias[:, None]
        return _like(normal_CM, x).contiguous()  # no view: what comes next may write into it

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        normal_CM, scale_C, count, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        group: ProcessGroup = ctx.group  # type: ignore[attr-defined]
        gradient_CM = _by_channel(gradient)
        grad_bias_C, grad_weight_C = gradient_CM.sum(1), (gradient_CM * normal_CM).sum(1)
        mean_C = _summed(grad_bias_C.clone(), group) / count
        along_C = _summed(grad_weight_C.clone(), group) / count
        grad_x_CM = (gradient_CM - mean_C[:, None] - normal_CM * along_C[:, None]) * scale_C[:, None]
        if weight is None:
            return _like(grad_x_CM, gradient), *[None] * 7
        grad_x = _like(grad_x_CM * weight[:, None], gradient)
        return grad_x, grad_weight_C.to(weight.dtype), grad_bias_C.to(weight.dtype), *[None] * 5


def _by_channel(x: Tensor) -> Tensor:
    """``x`` in at least single precision, with a row for each channel."""
    return x.transpose(0, 1).flatten(1).to(torch.promote_types(x.dtype, torch.float32))


def _like(x_CM: Tensor, like: Tensor) -> Tensor:
    """The rows of channels in the shape and dtype of ``like``."""
    swapped = like.transpose(0, 1)
    return x_CM.reshape(swapped.shape).transpose(0, 1).to(like.dtype)


def _summed(x: Tensor, group: ProcessGroup) -> Tensor:
    dist.all_reduce(x, group=group)
    return x
