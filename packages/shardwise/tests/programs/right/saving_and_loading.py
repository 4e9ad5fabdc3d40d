"""Checkpoints: state_dict with types saved, loaded back weights_only, strictly, by assignment; numpy in and out."""

import copy
import io

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))


def make():
    model = nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4))
    spmd.assert_type(list(model[0].parameters()), {"dp": R, "tp": S(0)})
    spmd.assert_type(list(model[1].parameters()), {"dp": R, "tp": S(0)})
    return model


with spmd.set_current_mesh(mesh):
    model = make()
    optimizer = torch.optim.AdamW(model.parameters())
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}, file)
    file.seek(0)
    loaded = torch.load(file, map_location="cpu", weights_only=True)
    other = make()
    other.load_state_dict(loaded["model"], strict=True)
    optimizer.load_state_dict(loaded["optimizer"])
    third = make()
    third.load_state_dict({k: v.clone() for k, v in loaded["model"].items()}, assign=True)
    fourth = copy.deepcopy(other).to(torch.bfloat16).to("cuda")
    with torch.device("meta"):
        skeleton = nn.Linear(8, 4)
    skeleton.to_empty(device="cpu").load_state_dict(model[0].state_dict())
    for one in (other, third):
        x = spmd.assert_type(torch.ones(2, 8), {"dp": S(0), "tp": R})
        y = one[0](x)
        assert spmd.get_axis_local_type(y, "tp") is V
        one(x)
    array = np.arange(16, dtype=np.float32).reshape(2, 8)
    x = spmd.assert_type(torch.from_numpy(array), {"dp": S(0), "tp": R})
    y = fourth[0](x.bfloat16())
    result = y.detach().float().cpu().numpy()
    z = torch.as_tensor(result * 2)
    z = spmd.assert_type(z, {"dp": V, "tp": V})
    print((y + z).shape, sum(p.numel() for p in model.parameters()), model[1].bias.tolist())
