"""Greedy decoding with a preallocated key/value cache, tensor parallel, under inference_mode and no_grad."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))
WIDTH, HEADS, HEAD, LENGTH, VOCAB = 32, 1, 8, 16, 64


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * HEADS * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCAB // 8, bias=False)
        spmd.assert_type(self.embedding.weight, {"tp": I})
        spmd.assert_type(self.qkv.weight, {"tp": S(0)})
        spmd.assert_type(self.out.weight, {"tp": S(1)})
        spmd.assert_type(self.head.weight, {"tp": S(0)})
        self.register_buffer("keys", torch.zeros(1, HEADS, LENGTH, HEAD), persistent=False)
        self.register_buffer("values", torch.zeros(1, HEADS, LENGTH, HEAD), persistent=False)

    def forward(self, ids, position):
        x = self.embedding(ids)
        q, k, v = self.qkv(x).view(1, ids.shape[1], 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        end = position + ids.shape[1]
        self.keys[:, :, position:end] = k
        self.values[:, :, position:end].copy_(v)
        o = F.scaled_dot_product_attention(q, self.keys[:, :, :end], self.values[:, :, :end], is_causal=position == 0)
        y = spmd.all_reduce(self.out(o.transpose(1, 2).flatten(2)), "tp", src=V, dst=I)
        logits = self.head(x + y)[:, -1]
        return spmd.all_gather(logits, "tp", src=S(-1), dst=R)


@torch.inference_mode()
def generate(model, ids, count):
    logits = model(ids, 0)
    tokens = [logits.argmax(-1, keepdim=True)]
    for position in range(ids.shape[1], ids.shape[1] + count):
        logits = model(tokens[-1], position)
        token = logits.argmax(-1, keepdim=True)
        if token.item() == 2:
            break
        tokens.append(token)
    return torch.cat([ids, *tokens], 1)


with spmd.set_current_mesh(mesh):
    model = Decoder().eval()
    prompt = spmd.assert_type(torch.tensor([[5, 6, 7]]), {"tp": R})
    print(generate(model, prompt, 4).tolist())
    with torch.no_grad():
        model.keys.zero_()
        probabilities = model(prompt, 0).softmax(-1)
        print(f"entropy {-(probabilities * probabilities.log()).sum():.3f}")
