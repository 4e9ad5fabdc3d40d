"""Old-style code around torch.distributed: autograd functions registered in every way that there is."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V, rules

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
TP = mesh.get_group("tp")


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty(x.shape[0] * 4, *x.shape[1:], dtype=x.dtype)
        dist.all_gather_into_tensor(out, x.contiguous(), group=TP)
        return out

    @staticmethod
    def backward(ctx, gradient):
        out = torch.empty(gradient.shape[0] // 4, *gradient.shape[1:], dtype=gradient.dtype)
        dist.reduce_scatter_tensor(out, gradient.contiguous(), group=TP)
        return out

    @staticmethod
    def spmd_typecheck(*, x):
        return rules.all_gather(x, TP, src=S(0), dst=R)


class ScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty(x.shape[0] // 4, *x.shape[1:], dtype=x.dtype)
        dist.reduce_scatter_tensor(out, x.contiguous(), group=TP)
        return out

    @staticmethod
    def backward(ctx, gradient):
        out = torch.empty(gradient.shape[0] * 4, *gradient.shape[1:], dtype=gradient.dtype)
        dist.all_gather_into_tensor(out, gradient.contiguous(), group=TP)
        return out

    @staticmethod
    def spmd_typecheck(out, *, x):
        rules.reduce_scatter(x, TP, src=P, dst=S(0), out=out)


@spmd.register_local_autograd_function
class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx, gradient):
        gate, up = ctx.saved_tensors
        s = gate.sigmoid()
        return gradient * up * s * (1 + gate * (1 - s)), gradient * gate * s


class FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, scale):
        ctx.save_for_backward(x, weight)
        ctx.scale = scale
        return x @ weight.T * scale

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight * ctx.scale, gradient.flatten(0, 1).T @ x.flatten(0, 1) * ctx.scale, None


@spmd.register_decomposition(FusedLinear)
def fused_linear(x, weight, scale):
    return F.linear(x, weight) * scale


@spmd.register_autograd_function
class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient

    @staticmethod
    def typecheck_forward(x):
        out = Straight.apply(x)
        spmd.assert_type_like(out, x)
        return out


with spmd.set_current_mesh(mesh):
    gate = spmd.assert_type(torch.randn(8, 16, requires_grad=True), {"dp": R, "tp": S(0)})
    up = spmd.assert_type(torch.randn(8, 16, requires_grad=True), {"dp": R, "tp": S(0)})
    down = spmd.assert_type(torch.randn(16, 8, requires_grad=True), {"dp": R, "tp": S(1)})
    x = spmd.assert_type(torch.randn(2, 3, 16, requires_grad=True), {"dp": S(1), "tp": S(0)})
    h = GatherSequence.apply(x)
    h = SwiGLU.apply(FusedLinear.apply(h, gate, 0.5), FusedLinear.apply(h, up, 1.0))
    y = ScatterSequence.apply(spmd.linear(Straight.apply(h), down, out_partial_axes="tp"))
    loss = spmd.reinterpret((x + y).square().mean(), "tp", src=V, dst=P)
    loss = spmd.all_reduce(loss, "tp", src=P, dst=I)
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
