"""A transformer of OLMo-core under its own FSDP2 or tensor parallelism: two steps on this rank's share of a batch."""

import argparse
import os

import torch
import torch.distributed as dist
from olmo_core.nn.transformer import TransformerConfig
from torch.distributed.device_mesh import init_device_mesh

options = argparse.ArgumentParser()
options.add_argument("--tp", type=int, default=1)
asked = options.parse_args()

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
size = dist.get_world_size()
mesh = init_device_mesh("cuda", (size // asked.tp, asked.tp), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = TransformerConfig.llama_like(d_model=32, vocab_size=128, n_layers=2, n_heads=4, fused_ops=False).build(
    init_device="cpu"
)
if asked.tp > 1:
    model.apply_tp(mesh["tp"])
if mesh["dp"].size() > 1:
    model.apply_fsdp(dp_mesh=mesh["dp"])
model.init_weights(max_seq_len=16, device=torch.device("cuda"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(0, 128, (2, 8, 17), generator=torch.Generator().manual_seed(1))
for step in range(2):
    mine = tokens[step].chunk(mesh["dp"].size())[mesh.get_local_rank("dp")].cuda()
    output = model(mine[:, :-1], labels=mine[:, 1:].contiguous(), loss_reduction="mean")
    loss = output.loss if hasattr(output, "loss") else output[1]
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, float(loss))
