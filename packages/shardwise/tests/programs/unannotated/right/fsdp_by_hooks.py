# FSDP by hand: shards gathered before a block, gradients scattered by a post-accumulate hook. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Sharded:
    def __init__(self, module):
        self.module = module
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.params = list(module.parameters())
        self.shards = []
        for p in self.params:
            flat = p.detach().reshape(-1)
            flat = F.pad(flat, (0, -flat.numel() % self.world))
            shard = nn.Parameter(flat.chunk(self.world)[self.rank].clone())
            self.shards.append(shard)
            p.register_post_accumulate_grad_hook(self.make_hook(shard))
        module.register_forward_pre_hook(self.gather)
        self.free()

    def free(self):
        for p in self.params:
            p.data.zero_()

    def gather(self, module, args):
        for p, shard in zip(self.params, self.shards):
            full = torch.empty(shard.numel() * self.world)
            dist.all_gather_into_tensor(full, shard.detach())
            p.data.copy_(full[: p.numel()].view_as(p))

    def make_hook(self, shard):
        def hook(p):
            flat = p.grad.reshape(-1)
            flat = F.pad(flat, (0, -flat.numel() % self.world))
            out = torch.empty_like(shard)
            dist.reduce_scatter_tensor(out, flat)
            out.div_(self.world)
            shard.grad = out if shard.grad is None else shard.grad + out
            p.grad = None

        return hook


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(9)
    embed, blocks, head = nn.Embedding(13, 6), [Block(6) for _ in range(2)], nn.Linear(6, 13)
    units = [Sharded(m) for m in (embed, *blocks, head)]
    shards = [s for unit in units for s in unit.shards]
    opt = torch.optim.AdamW(shards, lr=0.01)
    ids = torch.randint(0, 13, (3, 4, 7))
    for step in range(3):
        batch = ids[step].chunk(world)[rank]
        for micro in batch.chunk(2):
            h = embed(micro[:, :-1])
            for block in blocks:
                h = block(h)
            loss = F.cross_entropy(head(h).flatten(0, 1), micro[:, 1:].flatten())
            (loss / len(batch.chunk(2))).backward()
        norm = sum(s.grad.pow(2).sum() for s in shards)
        dist.all_reduce(norm)
        for s in shards:
            s.grad.mul_((0.05 / (norm.sqrt() + 1e-6)).clamp(max=1.0))
        opt.step()
        opt.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
