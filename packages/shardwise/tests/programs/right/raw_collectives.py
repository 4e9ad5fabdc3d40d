"""torch.distributed called directly: async handles, averages, broadcasts of parameters, gathers, coalescing."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))
world = dist.get_world_size()


def sum_over_ranks(*values):
    handles = [dist.all_reduce(value, async_op=True) for value in values]
    for handle in handles:
        handle.wait()


with spmd.set_current_mesh(mesh):
    model = nn.Linear(8, 8)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
        spmd.assert_type(parameter, {"dp": R})
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})

    def backward():
        model.zero_grad()
        y = model(x)
        loss = spmd.reinterpret(y.square().sum(), "dp", src=V, dst=P)
        loss.backward()
        return y, loss

    backward()
    handles = []
    for parameter in model.parameters():
        handles.append(dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, async_op=True))
    for handle in handles:
        handle.wait()
    backward()
    with dist._coalescing_manager(async_ops=True) as manager:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    manager.wait()
    y, loss = backward()
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    dist.all_reduce(flat)
    for parameter, piece in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
        parameter.grad.copy_(piece.view_as(parameter))

    total, count = loss.detach().clone(), torch.tensor(float(x.shape[0]))
    sum_over_ranks(total)
    print(f"loss {total.item() / (count.item() * world):.3f}")

    top = y.detach().amax()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    print(f"largest {top:.3f}")

    pieces = [torch.empty_like(y) for _ in range(world)]
    dist.all_gather(pieces, y.detach())
    everything = torch.cat(pieces)
    gathered = torch.empty(world * 4, 8)
    dist.all_gather_into_tensor(gathered, y.detach())
    if torch.allclose(everything, gathered):
        print("same", everything.norm().item())

    scattered = torch.empty(1, 8)
    dist.reduce_scatter_tensor(scattered, spmd.reinterpret(gathered[:8], "dp", src=R, dst=P, expert_mode=True))
    swapped = torch.empty(8, 8)
    dist.all_to_all_single(swapped, everything[:8].clone())
    swapped = swapped + scattered
    dist.barrier()
    names = [None] * world
    dist.all_gather_object(names, "rank 0")
    box = ["configuration"]
    dist.broadcast_object_list(box, src=0)
    spare = torch.empty(4, 8)
    if dist.get_rank() == 0:
        dist.send(y.detach(), dst=1)
    elif dist.get_rank() == 1:
        dist.recv(spare, src=0)
    print(swapped.shape)
