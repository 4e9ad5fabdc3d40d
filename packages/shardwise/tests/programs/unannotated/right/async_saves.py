# FSDP2 whose checkpoints are written while training goes on, and a second run that goes on from one. mesh: dp=2
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class TrainState(Stateful):
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = int(state["step"])


def build(mesh, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 6))
    for module in (model[0], model[3]):
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
    return TrainState(model, optimizer)


def train(state, until, rank, world, folder=None, saving=None):
    pending = None
    while state.step < until:
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(100 + state.step)).tensor_split(world)[rank]
        loss = (state.model(x) - x.flip(-1)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.step += 1
        if folder is not None:
            if pending is not None:
                pending.result()
            where = os.path.join(folder, f"step-{state.step}")
            pending = dcp.async_save({"app": state}, checkpoint_id=where, process_group=saving)
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {state.step} loss {total / world:.6f}")
    if pending is not None:
        pending.result()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    saving = dist.new_group(backend="gloo")  # its own, since a thread of its own saves
    where = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(where, src=0)
    folder = where[0]
    train(build(mesh, 0), 2, rank, world, folder, saving)
    state = build(mesh, 1)
    dcp.load({"app": state}, checkpoint_id=os.path.join(folder, "step-2"))
    train(state, 4, rank, world)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
