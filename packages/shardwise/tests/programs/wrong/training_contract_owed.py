"""A step by contract that forgets the router's sum over the expert axis, then makes a sum that has been made."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "ep"))

with spmd.set_current_mesh(mesh):
    model = nn.ModuleDict({"router": nn.Linear(8, 4, bias=False), "experts": nn.Linear(8, 4, bias=False)})
    spmd.assert_type(model["router"].weight, {"dp": R, "ep": R})
    spmd.assert_type(model["experts"].weight, {"dp": R, "ep": S(0)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def backward():
        x = spmd.assert_type(torch.randn(16, 4, 8), {"dp": S(0), "ep": S(1)})
        out = (torch.softmax(model["router"](x), -1) * model["experts"](x)).square().sum()
        for axis in ("dp", "ep"):
            out = spmd.reinterpret(out, axis, src=V, dst=P)
        out.backward()

    contract = spmd.TrainingContract(model, owed={"*": {"dp": "step"}})
    backward()
    contract.finalize()  # SW611
    optimizer.step()
    optimizer.zero_grad()

    contract = spmd.TrainingContract(model, owed={"*": {"dp": "step"}, "router.*": {"ep": "step"}})
    backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
    contract.finalize()  # SW612
    optimizer.zero_grad()

    backward()
    spmd.clip_grad_norm_(model.parameters(), 1.0)  # SW610 SW610
    contract.finalize()
    optimizer.step()
