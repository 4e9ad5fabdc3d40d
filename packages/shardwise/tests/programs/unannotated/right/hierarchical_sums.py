# Gradients reduced in two levels, inside of a node and across nodes. mesh: dp=4
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Hierarchical:
    """Reduce-scatter inside, all-reduce across, all-gather inside."""

    def __init__(self, inner, outer):
        self.inner, self.outer = inner, outer
        self.n = dist.get_world_size(inner)
        self.total = dist.get_world_size()

    @torch.no_grad()
    def __call__(self, params):
        flat = torch.nn.utils.parameters_to_vector([p.grad for p in params])
        pad = -flat.numel() % self.n
        flat = F.pad(flat, (0, pad))
        mine = flat.new_empty(flat.numel() // self.n)
        dist.reduce_scatter_tensor(mine, flat, group=self.inner)
        dist.all_reduce(mine, group=self.outer)
        mine /= self.total
        dist.all_gather_into_tensor(flat, mine, group=self.inner)
        torch.nn.utils.vector_to_parameters(flat[: flat.numel() - pad], [p.grad for p in params])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    gpus_per_node = 2
    nodes = max(world // gpus_per_node, 1)
    per_node = world // nodes
    inner = outer = None
    for node in range(nodes):
        group = dist.new_group(list(range(node * per_node, (node + 1) * per_node)))
        if rank // per_node == node:
            inner = group
    for local in range(per_node):
        group = dist.new_group(list(range(local, world, per_node)))
        if rank % per_node == local:
            outer = group
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(7, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 3))
    params = list(model.parameters())
    reduce = Hierarchical(inner, outer)
    opt = torch.optim.AdamW(params, lr=1e-2)
    x, y = torch.randn(3, 8, 7), torch.randint(0, 3, (3, 8))
    for step in range(3):
        share = 8 // world
        mine = slice(rank * share, (rank + 1) * share)
        loss = F.cross_entropy(model(x[step, mine]), y[step, mine])
        opt.zero_grad()
        loss.backward()
        reduce(params)
        opt.step()
    dist.destroy_process_group()


main()
