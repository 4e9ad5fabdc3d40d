# k-means on plain tensors: sums over ranks and printed numbers, no gradients. mesh: dp=2
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
gen = torch.Generator().manual_seed(3)
points = torch.randn(60, 3, generator=gen) + torch.randint(0, 4, (60, 1), generator=gen) * 2.0
bounds = [0, 60] if world == 1 else [0, 22, 60]
mine = points[bounds[rank] : bounds[rank + 1]]
centers = points[:4].clone()
for it in range(5):
    dist2 = (mine[:, None] - centers[None]).square().sum(-1)
    nearest, label = dist2.min(1)
    sums = torch.zeros(4, 3).index_add_(0, label, mine)
    counts = torch.bincount(label, minlength=4).float()
    inertia = nearest.sum()
    dist.all_reduce(sums)
    dist.all_reduce(counts)
    dist.all_reduce(inertia)
    centers = sums / counts.clamp(min=1)[:, None]
    if rank == 0:
        print(f"iteration {it} inertia {inertia.item() / 60:.6f} centers {centers.sum().item():.6f}")
dist.destroy_process_group()
