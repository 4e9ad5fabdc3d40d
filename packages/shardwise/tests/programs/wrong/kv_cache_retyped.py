"""The cache of a decoder is replicated, its keys are split by head: what is read back differs per rank."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 24, bias=False)
        self.out = nn.Linear(8, 16, bias=False)
        spmd.assert_type(self.qkv.weight, {"tp": S(0)})
        spmd.assert_type(self.out.weight, {"tp": S(1)})
        self.register_buffer("cache", spmd.assert_type(torch.zeros(2, 1, 32, 8), {"tp": R}))

    def forward(self, x, position):
        q, k, v = self.qkv(x).chunk(3, -1)
        self.cache[0, :, position] = k
        self.cache[1, :, position] = v
        o = F.scaled_dot_product_attention(
            q[:, None], self.cache[0, :, : position + 1], self.cache[1, :, : position + 1]
        )
        return self.out(o[:, 0])


with spmd.set_current_mesh(mesh), torch.inference_mode():
    attention = Attention()
    x = spmd.assert_type(torch.randn(1, 16), {"tp": R})
    y = attention(x, 0)
    spmd.assert_type(attention.cache, {"tp": R})  # SW130
    y = spmd.all_reduce(y, "tp", src=V, dst=R)
    token = y.argmax(-1)
    z = spmd.all_gather(y, "tp", src=S(0), dst=R)  # SW201
