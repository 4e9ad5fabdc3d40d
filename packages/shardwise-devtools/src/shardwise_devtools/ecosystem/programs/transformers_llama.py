"""Llama of transformers, distributed by its own plans: two steps on this rank's share of a batch."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.distributed import DistributedConfig

options = argparse.ArgumentParser()
options.add_argument("--tp", type=int, default=1)
options.add_argument("--fsdp", type=int, default=1)
asked = options.parse_args()

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
tiny = LlamaConfig(
    vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32, use_cache=False,
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    LlamaForCausalLM(tiny).save_pretrained(folder)  # once there is a group, rank 0 alone saves
    dist.init_process_group("nccl")
    parallel = {}
    if asked.tp * asked.fsdp > 1:
        parallel = {"distributed_config": DistributedConfig(tp_size=asked.tp, fsdp_size=asked.fsdp)}
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, **parallel)
model.cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(0, 128, (2, 8, 16), generator=torch.Generator().manual_seed(1))
for step in range(2):
    mine = tokens[step].chunk(asked.fsdp)[dist.get_rank() // asked.tp].cuda()
    loss = model(input_ids=mine, labels=mine).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, float(loss))
dist.destroy_process_group()
