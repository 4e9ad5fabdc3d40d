"""The Trainer of transformers under DDP: two steps."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

options = argparse.ArgumentParser()
options.add_argument("--dp", type=int, default=1)
asked = options.parse_args()


class Tokens(Dataset):
    """Sequences of tokens that are their own labels."""

    def __init__(self):
        self.tokens = torch.randint(0, 128, (32, 16), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, at):
        return {"input_ids": self.tokens[at], "labels": self.tokens[at]}


torch.manual_seed(0)
tiny = LlamaConfig(
    vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32, use_cache=False,
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=8 // asked.dp, max_steps=2, logging_steps=1, report_to=[],
        use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    Trainer(model=LlamaForCausalLM(tiny), args=arguments, train_dataset=Tokens()).train()
