"""An MLP under DeepSpeed ZeRO, stage 1 to 3: two steps by its engine."""

import argparse
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
from torch import nn

options = argparse.ArgumentParser()
options.add_argument("--stage", type=int, default=1)
asked = options.parse_args()

deepspeed.init_distributed("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
size, rank = dist.get_world_size(), dist.get_rank()
engine, *_ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    config={
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 8 // size,
        "zero_optimization": {"stage": asked.stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "torch_autocast": {"enabled": False},
    },
)
data = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1))
for step in range(2):
    loss = engine(data[step].chunk(size)[rank]).square().mean()
    engine.backward(loss)
    engine.step()
    print("step", step, float(loss))
