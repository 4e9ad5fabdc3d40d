"""Llama 3 of torchtune at debug size under FSDP2 as its recipes shard it: two steps of full or LoRA fine-tuning."""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torchtune.models.llama3 import llama3, lora_llama3
from torchtune.modules.peft import get_adapter_params, set_trainable_params
from torchtune.training import shard_model

options = argparse.ArgumentParser()
options.add_argument("--lora", action="store_true")
asked = options.parse_args()

dist.init_process_group("gloo")
size, rank = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
torch.manual_seed(0)
sizes = {
    "vocab_size": 64,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "embed_dim": 32,
    "max_seq_len": 32,
    "intermediate_dim": 64,
}
if asked.lora:
    model = lora_llama3(
        lora_attn_modules=["q_proj", "v_proj"], apply_lora_to_mlp=True, lora_rank=4, lora_alpha=8, **sizes
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_b" in name:  # zeros, as a fine-tuning starts, would keep lora_a from learning in the first step
                parameter.normal_(std=0.02)
    set_trainable_params(model, get_adapter_params(model))
else:
    model = llama3(**sizes)
layers = [lambda name, module: name.startswith("layers.") and name.count(".") == 1]
shard_model(model, shard_conditions=layers, cpu_offload=False, reshard_after_forward=True, dp_mesh=mesh)
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-3)
tokens = torch.randint(0, 64, (2, 8, 17), generator=torch.Generator().manual_seed(1))
for step in range(2):
    local = tokens[step].chunk(size)[rank]
    logits = model(local[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), local[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, float(loss))
