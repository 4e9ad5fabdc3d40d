"""N processes with gloo on one machine that compile code with collectives; rank 1 may differ.

    TORCH_TRACE=DIR python ranks.py [--world 2] [--diverge shape|order|late|none]

One log a rank, and one without a rank for what was logged before the process group came up.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.multiprocessing as mp


def worker(rank, world, port, diverge):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch._inductor.config.fx_graph_cache = False

    @torch.compile
    def f(x):
        y = fc.all_reduce(x * 2, "sum", dist.group.WORLD)
        return fc.all_gather_tensor(y.relu(), 0, dist.group.WORLD)

    @torch.compile
    def g(x):
        return x.sin() + 1

    if diverge == "late" and rank == 1:
        time.sleep(2)
    if diverge == "order" and rank == 1:
        g(torch.randn(4))
        f(torch.randn(4))
    else:
        f(torch.randn(4))
        g(torch.randn(4))
    if diverge == "shape":
        g(torch.randn(4 + rank))  # rank 1 recompiles, rank 0 does not
    m = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]), bucket_cap_mb=2
    )
    cm = torch.compile(m)
    cm(torch.randn(2, 512)).sum().backward()  # optimize_ddp splits
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--world", type=int, default=2)
    ap.add_argument("--diverge", default="none")
    a = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (a.world, port, a.diverge), nprocs=a.world)
