# FSDP2 with selective checkpoints that keep matrix products; the head is called by chunks. mesh: dp=2
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def keep_products(ctx, op, *args, **kwargs):
    kept = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}
    return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.up, self.gate, self.down = nn.Linear(dim, 3 * dim), nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, 8)
        self.layers = nn.ModuleList([Layer(8) for _ in range(3)])
        self.out = nn.Linear(8, 10, bias=False)

    def forward(self, x):
        x = self.inp(x)
        contexts = functools.partial(create_selective_checkpoint_contexts, keep_products)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False, context_fn=contexts)
        return x


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(41)
    net = Net()
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32, output_dtype=torch.float32)
    for layer in net.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(net.out, mp_policy=policy, reshard_after_forward=False)
    fully_shard(net, mp_policy=policy)
    opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
    gen = torch.Generator().manual_seed(6)
    for step in range(3):
        x, y = torch.randn(16, 6, generator=gen), torch.randint(10, (16,), generator=gen)
        x, y = x.chunk(world)[rank], y.chunk(world)[rank]
        hidden = net(x)
        losses = [nn.functional.cross_entropy(net.out(h), t) for h, t in zip(hidden.chunk(2), y.chunk(2))]
        loss = torch.stack(losses).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"step {step}: {shown.item() / world:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
