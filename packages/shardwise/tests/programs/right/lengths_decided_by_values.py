"""Tensors as long as each rank's own values say, in all the ways that work: reduced, padded, sent with their sizes."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
dp = mesh["dp"].get_group()
CAPACITY = 16

with spmd.set_current_mesh(mesh):
    tokens = spmd.assert_type(torch.randn(12, 4), {"dp": S(0), "tp": R})
    weight = spmd.assert_type(torch.randn(4, 4, requires_grad=True), {"dp": R, "tp": R})
    scores = tokens.sum(1)
    mask = scores > 0

    # What the mask selects is summed, and so is its count.
    losses = F.linear(tokens, weight).square().mean(1)
    total, count = losses[mask].sum(), mask.sum()
    count = spmd.all_reduce(count, "dp", src=V, dst=R).clamp(min=1)
    print((spmd.all_reduce(total.detach(), "dp", src=V, dst=R) / count).item())
    column_means = tokens[mask].mean(0)
    dist.all_reduce(column_means, group=dp)

    # Padded to a fixed length, or written into a buffer that has one.
    kept = tokens[mask]
    padded = F.pad(kept, (0, 0, 0, CAPACITY - kept.shape[0]))
    spmd.all_gather(padded, "dp", src=S(0), dst=R)
    buffer = tokens.new_zeros(CAPACITY, 4)
    buffer[: kept.shape[0]] = kept
    spmd.all_gather(buffer, "dp", src=S(0), dst=R)
    restored = torch.zeros_like(tokens)
    restored[mask] = kept
    restored.index_add_(0, mask.nonzero().squeeze(1), kept)
    spmd.all_gather(restored, "dp", src=S(0), dst=R)
    both = torch.cat([tokens[mask], tokens[~mask]])
    spmd.all_gather(both, "dp", src=S(0), dst=R)

    # The lengths go first, and make the room.
    length = torch.tensor([kept.shape[0]])
    lengths = [torch.zeros(1, dtype=torch.long) for _ in range(2)]
    dist.all_gather(lengths, length, group=dp)
    pieces = [torch.empty(int(one), 4) for one in lengths]
    dist.all_gather(pieces, kept, group=dp)
    order = torch.argsort(scores)
    half = kept.shape[0] // 2
    sent = [half, kept.shape[0] - half]
    coming = torch.empty(2, dtype=torch.long)
    dist.all_to_all_single(coming, torch.tensor(sent), group=dp)
    room = coming.tolist()
    arrived = torch.empty(sum(room), 4)
    dist.all_to_all_single(arrived, kept, room, sent, group=dp)

    # Over the other axis all ranks have the same rows.
    shards = spmd.assert_type(torch.randn(12, 4), {"dp": S(0), "tp": S(1)})
    spmd.all_gather(shards[mask], "tp", src=S(1), dst=R)
    spmd.all_reduce(F.linear(shards[mask], torch.ones(2, 4)).sum(0), "dp", src=V, dst=R)

    # Lengths that do not depend on values, or on values that are equal.
    everywhere = spmd.assert_type(torch.arange(12) % 3 == 0, {"dp": R, "tp": R})
    spmd.all_gather(tokens[everywhere], "dp", src=S(0), dst=R)
    spmd.all_gather(torch.bincount(order, minlength=12), "dp", src=V, dst=R)
    spmd.all_gather(F.one_hot(order, 12), "dp", src=S(0), dst=R)
    spmd.all_gather(tokens[order[:3]], "dp", src=S(0), dst=R)
    spmd.all_gather(torch.where(mask, scores, 0.0), "dp", src=S(0), dst=R)
    spmd.all_gather(torch.nonzero_static(mask, size=4), "dp", src=S(0), dst=R)
    best = spmd.assert_type(tokens[F.one_hot(scores.topk(3).indices, 12).sum(0).bool()], {"dp": S(0)}, even=True)
    spmd.all_gather(best, "dp", src=S(0), dst=R)
