"""A model under lightning's ModelParallelStrategy: FSDP2, and tensor parallelism where it is asked for."""

import argparse

import lightning
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader

options = argparse.ArgumentParser()
options.add_argument("--tp", type=int, default=1)
options.add_argument("--dp", type=int, default=1)
asked = options.parse_args()


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def configure_model(self):
        mesh = self.device_mesh
        if mesh["tensor_parallel"].size() > 1:
            parallelize_module(self, mesh["tensor_parallel"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        if mesh["data_parallel"].size() > 1:
            fully_shard(self, mesh=mesh["data_parallel"])

    def forward(self, x):
        return self.down(self.up(x).relu())

    def training_step(self, batch, at):
        return self(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


torch.manual_seed(0)
data = torch.randn(16, 16, generator=torch.Generator().manual_seed(1))
trainer = lightning.Trainer(
    accelerator="cpu", devices=asked.tp * asked.dp, max_steps=2, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
    strategy=ModelParallelStrategy(data_parallel_size=asked.dp, tensor_parallel_size=asked.tp),
)  # fmt: skip
trainer.fit(Model(), DataLoader(data, batch_size=8 // asked.dp))
