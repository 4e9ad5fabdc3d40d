"""Gradients summed in every way that programs use: one by one, in buckets, in buffers, coalesced, from hooks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
dp, tp = mesh.get_group("dp"), mesh.get_group("tp")


class Mixed(nn.Module):
    """A parameter of every type: split, invariant, and replicate over tp."""

    def __init__(self):
        super().__init__()
        self.rows, self.bias, self.norm = (nn.Parameter(torch.randn(*shape)) for shape in ((8, 4), (4,), (4,)))
        for parameter, place in ((self.rows, S(0)), (self.bias, I), (self.norm, R)):
            spmd.assert_type(parameter, {"dp": R, "tp": place})

    def forward(self, x):
        own = spmd.convert(x, "tp", src=I, dst=S(1))
        whole = spmd.all_gather(own * self.norm, "tp", src=S(1), dst=R)
        split = spmd.all_reduce((whole @ self.rows.t()).sum((1, 2)), "tp", src=V, dst=I)
        return spmd.reinterpret((split + (x * self.bias).sum((1, 2))).sum(), "dp", src=V, dst=P)


def one_by_one(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter.grad, group=dp)
        parameter.grad /= mesh["dp"].size()


def typed(parameters):
    for parameter in parameters:
        parameter.grad = spmd.all_reduce(parameter.grad, "dp", src=P, dst=R)


def asynchronous(parameters):
    for work in [dist.all_reduce(parameter.grad.data, group=dp, async_op=True) for parameter in parameters]:
        work.wait()


def coalesced(parameters):
    with dist._coalescing_manager(group=dp):
        for parameter in parameters:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=dp)


def concatenated(parameters):
    flat = torch.cat([parameter.grad.float().flatten() for parameter in parameters])
    dist.all_reduce(flat, group=dp)
    for parameter, piece in zip(parameters, flat.split([parameter.numel() for parameter in parameters])):
        parameter.grad = piece.view_as(parameter)


def flattened(parameters):
    gradients = [parameter.grad.data for parameter in parameters]
    flat = torch._utils._flatten_dense_tensors(gradients)
    flat.div_(mesh["dp"].size())
    dist.all_reduce(flat, group=dp)
    for gradient, piece in zip(gradients, torch._utils._unflatten_dense_tensors(flat, gradients)):
        gradient.copy_(piece)


def foreach(parameters):
    gradients = [parameter.grad for parameter in parameters]
    flat = torch._utils._flatten_dense_tensors(gradients)
    dist.all_reduce(flat, group=dp)
    torch._foreach_copy_(gradients, torch._utils._unflatten_dense_tensors(flat, gradients))


def as_a_vector(parameters):
    vector = nn.utils.parameters_to_vector([parameter.grad for parameter in parameters])
    dist.all_reduce(vector, group=dp)
    nn.utils.vector_to_parameters(vector, [parameter.grad for parameter in parameters])


def through_one_buffer(parameters):
    buffer, at = torch.zeros(sum(parameter.numel() for parameter in parameters)), 0
    for parameter in parameters:
        buffer[at : at + parameter.numel()].copy_(parameter.grad.view(-1))
        at += parameter.numel()
    dist.all_reduce(buffer, group=dp)
    at = 0
    for parameter in parameters:
        parameter.grad.copy_(buffer[at : at + parameter.numel()].view_as(parameter))
        at += parameter.numel()


def main_gradients(parameters):
    """Megatron's form: gradients are added up in wide buffers of their own, which enter the optimizer."""
    for parameter in parameters:
        if not hasattr(parameter, "main_grad"):
            parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
        parameter.main_grad.add_(parameter.grad)
        parameter.grad = None
    for parameter in parameters:
        dist.all_reduce(parameter.main_grad, group=dp)
        parameter.grad = parameter.main_grad


def contiguous_main_gradients(parameters):
    """The same with all of them in one buffer."""
    first = parameters[0]
    if not hasattr(first, "flat"):
        first.flat, at = torch.zeros(sum(parameter.numel() for parameter in parameters)), 0
        for parameter in parameters:
            parameter.part = first.flat[at : at + parameter.numel()].view(parameter.shape)
            at += parameter.numel()
    for parameter in parameters:
        parameter.part.add_(parameter.grad.data)
        parameter.grad = None
    dist.all_reduce(first.flat, group=dp)
    for parameter in parameters:
        parameter.grad = parameter.part


WAYS = [one_by_one, typed, asynchronous, coalesced, concatenated, flattened, foreach, as_a_vector, through_one_buffer]

with spmd.set_current_mesh(mesh):

    def batch():
        return spmd.assert_type(torch.randn(2, 8, 4), {"dp": S(0), "tp": I})

    for way in (*WAYS, main_gradients, contiguous_main_gradients):
        model = Mixed()
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(3):
            for _ in range(2):  # accumulation
                averages = way in (one_by_one, coalesced, flattened)
                (model(batch()) * (mesh["dp"].size() if averages else 1)).backward()
            dist.all_reduce(model.norm.grad, group=tp)
            way(list(model.parameters()))
            optimizer.step()
            if way is main_gradients or way is contiguous_main_gradients:
                for parameter in model.parameters():
                    parameter.grad.zero_()
                    parameter.grad = None
            else:
                optimizer.zero_grad(set_to_none=step > 0)

    model = Mixed()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad, group=dp))
    model.norm.register_hook(lambda gradient: spmd.all_reduce(gradient, "tp", src=P, dst=R))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_value_(model.parameters(), 1.0))
    model(batch()).backward()
    optimizer.step()

    gradients = torch.autograd.grad(model(batch()), list(model.parameters()))
    dist.all_reduce_coalesced(list(gradients), group=dp)
    dist.all_reduce(gradients[2], group=tp)
    for parameter, gradient in zip(model.parameters(), gradients):
        parameter.data.add_(gradient, alpha=-0.1)
