# DeepSeek's latent attention with heads over tp: latents are the same on all ranks. mesh: tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class MLA(nn.Module):
    def __init__(self, dim=16, heads=4, q_lora=8, kv_lora=6, nope=4, rope=2, v=4):
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        self.heads, self.nope, self.rope, self.v = heads // world, nope, rope, v

        def part(w, d):
            return nn.Parameter(w.chunk(world, d)[rank].clone())

        self.wq_a = nn.Linear(dim, q_lora, bias=False)
        self.q_norm = nn.RMSNorm(q_lora)
        self.wq_b = part(torch.randn(heads * (nope + rope), q_lora) * 0.2, 0)
        self.wkv_a = nn.Linear(dim, kv_lora + rope, bias=False)
        self.kv_norm = nn.RMSNorm(kv_lora)
        self.wkv_b = part(torch.randn(heads * (nope + v), kv_lora) * 0.2, 0)
        self.wo = part(torch.randn(dim, heads * v) * 0.2, 1)
        self.kv_lora = kv_lora

    def rotate(self, x, positions):
        angle = positions[None, :, None, None] * 0.3
        a, b = x.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def forward(self, x):
        b, s, _ = x.shape
        positions = torch.arange(s).float()
        q = F.linear(Copy.apply(self.q_norm(self.wq_a(x))), self.wq_b).view(b, s, self.heads, -1)
        q_nope, q_pe = q.split([self.nope, self.rope], -1)
        q = torch.cat([q_nope, self.rotate(q_pe, positions)], -1)
        kv, k_pe = self.wkv_a(x).split([self.kv_lora, self.rope], -1)
        k_pe = self.rotate(Copy.apply(k_pe).unsqueeze(2), positions)
        kv = F.linear(Copy.apply(self.kv_norm(kv)), self.wkv_b).view(b, s, self.heads, -1)
        k_nope, v = kv.split([self.nope, self.v], -1)
        k = torch.cat([k_nope, k_pe.expand(-1, -1, self.heads, -1)], -1)
        o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return Reduce.apply(F.linear(o.transpose(1, 2).reshape(b, s, -1), self.wo))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attn = nn.RMSNorm(16), MLA()

    def forward(self, x):
        return x + self.attn(self.norm(x))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    emb, blocks, head = nn.Embedding(17, 16), nn.Sequential(Block(), Block()), nn.Linear(16, 17)
    params = [*emb.parameters(), *blocks.parameters(), *head.parameters()]
    opt = torch.optim.AdamW(params, lr=1e-2)
    ids = torch.randint(0, 17, (3, 2, 9))
    for i in range(3):
        logits = head(blocks(emb(ids[i, :, :-1])))
        loss = F.cross_entropy(logits.flatten(0, 1), ids[i, :, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


main()
