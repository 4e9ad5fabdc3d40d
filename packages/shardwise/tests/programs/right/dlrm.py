"""Recommendation: whole embedding tables live on different ranks, all_to_all turns table-major into batch-major."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))
world, BATCH, WIDTH = 8, 4, 16

with spmd.set_current_mesh(mesh):
    tables = nn.ModuleList(nn.EmbeddingBag(100, WIDTH, mode="mean") for _ in range(2))
    for table in tables:
        spmd.assert_type(table.weight, {"dp": V})
    bottom, top = nn.Linear(5, WIDTH), nn.Linear(WIDTH + 17 * 17, 1)
    spmd.assert_type([*bottom.parameters(), *top.parameters()], {"dp": R})
    ids = spmd.assert_type(torch.randint(100, (2, world * BATCH, 3)), {"dp": V})
    dense = spmd.assert_type(torch.randn(BATCH, 5), {"dp": S(0)})
    labels = spmd.assert_type(torch.randint(2, (BATCH,)).float(), {"dp": S(0)})

    own = torch.stack([table(i) for table, i in zip(tables, ids)], dim=1)
    sparse = spmd.all_to_all(own, "dp", src=S(1), dst=S(0))
    x = F.relu(bottom(dense))
    features = torch.cat([x.unsqueeze(1), sparse], dim=1)
    products = torch.bmm(features, features.transpose(1, 2)).flatten(1)
    score = top(torch.cat([x, products], dim=1)).squeeze(1)
    loss = F.binary_cross_entropy_with_logits(score, labels) / world
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
    rows = torch.unique(ids[0])
    print(rows.shape, score.sigmoid().round().shape)
