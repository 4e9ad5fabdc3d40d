"""A GPT of litgpt under Fabric, in the loop of ``litgpt pretrain``: under DDP, or with its blocks under FSDP2."""

import argparse

import lightning
import torch
from lightning.fabric.strategies import ModelParallelStrategy
from litgpt.config import Config
from litgpt.model import GPT, Block
from litgpt.utils import chunked_cross_entropy
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

options = argparse.ArgumentParser()
options.add_argument("--dp", type=int, default=1)
options.add_argument("--fsdp", action="store_true")
asked = options.parse_args()
ACCUMULATED = 2


def shard(model, mesh):
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh["data_parallel"])
    return fully_shard(model, mesh=mesh["data_parallel"])


strategy = "ddp"
if asked.fsdp:
    strategy = ModelParallelStrategy(shard, data_parallel_size=asked.dp, tensor_parallel_size=1)
fabric = lightning.Fabric(accelerator="cpu", devices=asked.dp, strategy=strategy)
fabric.launch()
fabric.seed_everything(0)
sizes = {"block_size": 32, "vocab_size": 64, "padded_vocab_size": 64, "n_layer": 2, "n_head": 4, "n_embd": 32}
llama = {
    "n_query_groups": 2, "rotary_percentage": 1.0, "parallel_residual": False, "bias": False, "intermediate_size": 64,
    "norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP",
}  # fmt: skip
model = fabric.setup(GPT(Config(name="tiny", **sizes, **llama)))
optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-3))
tokens = torch.randint(0, 64, (32, 17), generator=torch.Generator().manual_seed(1))
loader = fabric.setup_dataloaders(DataLoader(tokens, batch_size=8 // asked.dp))
for at, batch in enumerate(loader):
    accumulating = at % ACCUMULATED < ACCUMULATED - 1
    with fabric.no_backward_sync(model, enabled=accumulating):
        logits = model(batch[:, :-1].long())
        loss = chunked_cross_entropy(logits, batch[:, 1:].long())
        fabric.backward(loss / ACCUMULATED)
    if not accumulating:
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
    fabric.print("loss", float(fabric.all_reduce(loss.detach())))
