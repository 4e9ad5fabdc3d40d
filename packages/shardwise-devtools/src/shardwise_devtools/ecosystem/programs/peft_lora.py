"""LoRA of peft on a Llama of transformers, under DDP: two steps on this rank's share of a batch."""

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

dist.init_process_group("gloo")
size, rank = dist.get_world_size(), dist.get_rank()
torch.manual_seed(0)
tiny = LlamaConfig(
    vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32, use_cache=False,
)  # fmt: skip
adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
model = DistributedDataParallel(get_peft_model(LlamaForCausalLM(tiny), adapters))
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-3)
tokens = torch.randint(0, 128, (2, 8, 16), generator=torch.Generator().manual_seed(1))
for step in range(2):
    local = tokens[step].chunk(size)[rank]
    loss = model(input_ids=local, labels=local).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, float(loss))
