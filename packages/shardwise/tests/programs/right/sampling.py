"""Text generation: temperature, top-k, top-p, repetition penalty; logits are gathered, numbers declared equal."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))
VOCAB = 64


def pick(logits, seen, temperature=0.8, top_k=10, top_p=0.9, penalty=1.2):
    score = torch.gather(logits, 1, seen)
    logits = logits.scatter(1, seen, torch.where(score < 0, score * penalty, score / penalty))
    logits = logits / temperature
    kth = torch.topk(logits, top_k).values[..., -1, None]
    logits = logits.masked_fill(logits < kth, -float("inf"))
    ordered, order = torch.sort(logits, descending=True)
    above = ordered.softmax(-1).cumsum(-1) > top_p
    above[..., 1:] = above[..., :-1].clone()
    above[..., 0] = 0
    logits[above.scatter(1, order, above)] = -float("inf")
    with spmd.synchronised_rng("tp"):
        return torch.multinomial(logits.softmax(-1), num_samples=1)


with spmd.set_current_mesh(mesh), torch.no_grad():
    torch.manual_seed(0)
    embedding, head = nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB // 8, bias=False)
    spmd.assert_type(embedding.weight, {"tp": R})
    spmd.assert_type(head.weight, {"tp": S(0)})
    ids = spmd.assert_type(torch.randint(VOCAB, (2, 4)), {"tp": R})
    done = torch.zeros(2, dtype=torch.bool)
    for _ in range(3):
        hidden = embedding(ids).mean(1)
        logits = spmd.all_gather(head(hidden), "tp", src=S(1), dst=R)
        token = pick(logits, ids)
        token = torch.where(done[:, None], 0, token)
        ids = torch.cat([ids, token], dim=1)
        done |= token[:, 0] == 1
        if done.all():
            break
    print([row[row != 0].tolist() for row in ids])
