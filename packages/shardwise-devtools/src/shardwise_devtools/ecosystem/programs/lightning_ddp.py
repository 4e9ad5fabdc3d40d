"""A model under lightning's DDPStrategy, or under Fabric with gradients accumulated over two batches."""

import argparse

import lightning
import torch
from lightning.fabric import Fabric
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader

options = argparse.ArgumentParser()
options.add_argument("--dp", type=int, default=1)
options.add_argument("--fabric", action="store_true")
asked = options.parse_args()
data = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
loader = DataLoader(data, batch_size=8 // asked.dp)


def net():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net()

    def training_step(self, batch, at):
        loss = self.net(batch).square().mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def by_fabric():
    fabric = Fabric(accelerator="cpu", devices=asked.dp, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(0)
    model = net()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for at, batch in enumerate(fabric.setup_dataloaders(loader)):
        with fabric.no_backward_sync(model, enabled=at % 2 == 0):
            loss = model(batch).square().mean()
            fabric.backward(loss / 2)
        if at % 2:
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
        fabric.print("loss", float(fabric.all_reduce(loss.detach())))


if asked.fabric:
    by_fabric()
else:
    torch.manual_seed(0)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=asked.dp, max_steps=3, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, strategy=DDPStrategy(process_group_backend="gloo"),
    )  # fmt: skip
    trainer.fit(Model(), loader)
