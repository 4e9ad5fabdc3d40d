"""Tensors as long as each rank's own values say, handed to collectives that need one length."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
dp = mesh["dp"].get_group()

with spmd.set_current_mesh(mesh):
    tokens = spmd.assert_type(torch.linspace(-1, 1, 48).view(12, 4), {"dp": S(0), "tp": R})
    scores = tokens.sum(1)

    kept = tokens[scores > 0]
    normed = torch.nn.functional.layer_norm(kept * 2, (4,)).reshape(-1, 2, 2).flatten(1)
    spmd.all_gather(normed, "dp", src=S(0), dst=R)  # SW117
    pieces = [torch.empty_like(kept) for _ in range(2)]
    dist.all_gather(pieces, kept, group=dp)  # SW117
    spmd.all_to_all(kept.t(), "dp", src=S(1), dst=S(1))  # SW117

    at = torch.nonzero(scores > 0).squeeze(1)
    total = scores[at].clone()
    dist.all_reduce(total, group=dp)  # SW117

    ids = (scores * 2).long().abs()
    spmd.all_gather(ids.unique(), "dp", src=S(0), dst=R)  # SW117
    spmd.all_reduce(torch.bincount(ids), "dp", src=V, dst=R)  # SW117
    copies = tokens.repeat_interleave(ids, dim=0)
    gathered = copies.new_empty(2 * copies.shape[0], 4)
    dist.all_gather_into_tensor(gathered, copies, group=dp)  # SW117
