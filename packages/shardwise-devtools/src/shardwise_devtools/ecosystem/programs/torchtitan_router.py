"""The gradient of torchtitan's router under tensor parallelism: run with torchrun on one rank and on two.

With ``after`` (scores multiply what the experts give, as in deepseek_v3 and qwen3) each rank of two keeps its own part
of the gradient; with ``before`` both have that of one rank.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torchtitan.models.llama4.infra.parallelize import apply_moe_ep_tp
from torchtitan.models.moe.moe import MoE, MoEArgs

histc = torch.histc
torch.histc = lambda x, *words, **named: histc(x.float(), *words, **named).long()  # counts whole numbers on GPUs only


class Block(nn.Module):
    """What ``apply_moe_ep_tp`` takes for a layer."""

    def __init__(self, before):
        super().__init__()
        self.moe_enabled = True
        options = {"score_before_experts": before, "use_grouped_mm": False, "load_balance_coeff": None}
        self.moe = MoE(MoEArgs(num_experts=4, num_shared_experts=0, top_k=2, **options), 16, 32)


dist.init_process_group("gloo")
size, rank = dist.get_world_size(), dist.get_rank()
model = nn.Module()
model.layers = nn.ModuleDict({"0": Block(sys.argv[1:] == ["before"])})
torch.manual_seed(0)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(0.3 * torch.randn(parameter.shape))
x, direction = torch.randn(2, 8, 16), torch.randn(2, 8, 16)
if size > 1:
    apply_moe_ep_tp(model, init_device_mesh("cpu", (size,), mesh_dim_names=("tp",)), None, None, None)
    x, direction = x.chunk(size, 1)[rank], direction.chunk(size, 1)[rank]
(model.layers["0"].moe(x) * direction).sum().backward()
gradient = model.layers["0"].moe.router.gate.weight.grad
gradient = gradient.to_local() if size > 1 else gradient
print(f"rank {rank} of {size}: router.gate.weight.grad begins with {gradient[0, 0].item():.4f}")
