# FSDP2 over all ranks, the sequence cut over cp by hand with keys and values gathered. mesh: dp=2,cp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(out, x.contiguous(), group=group)
        return torch.cat(out, 2)

    @staticmethod
    def backward(ctx, g):
        parts = [p.contiguous() for p in g.chunk(dist.get_world_size(ctx.group), 2)]
        out = torch.empty_like(parts[0])
        dist.reduce_scatter(out, parts, group=ctx.group)
        return out, None


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x, group):
        B, T, D = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        k, v = Gather.apply(k, group), Gather.apply(v, group)
        start = dist.get_rank(group) * T
        mask = torch.arange(k.size(2)) <= torch.arange(start, start + T)[:, None]
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(a.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Net(nn.Module):
    def __init__(self, vocab=20, d=8, layers=2, length=8):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, d), nn.Parameter(torch.randn(length, d) * 0.02)
        self.blocks = nn.ModuleList(Block(d, 2) for _ in range(layers))
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids, group):
        r, T = dist.get_rank(group), ids.size(1)
        h = self.emb(ids) + self.pos[r * T : (r + 1) * T]
        for block in self.blocks:
            h = block(h, group)
        return self.head(h)


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, 2) if world == 4 else (1, 1), mesh_dim_names=("dp", "cp"))
    flat = mesh._flatten("dp_cp")
    torch.manual_seed(0)
    net = Net()
    for block in net.blocks:
        fully_shard(block, mesh=flat)
    fully_shard(net, mesh=flat)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    tokens = torch.randint(0, 20, (3, 4, 9))
    group = mesh.get_group("cp")
    dp, r = mesh["dp"].size(), mesh.get_local_rank("dp")
    cp, c = mesh["cp"].size(), mesh.get_local_rank("cp")
    for batch in tokens:
        batch = batch.chunk(dp)[r]
        ids, labels = batch[:, :-1].chunk(cp, 1)[c], batch[:, 1:].chunk(cp, 1)[c]
        loss = F.cross_entropy(net(ids, group).flatten(0, 1), labels.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
    dist.destroy_process_group()


main()
