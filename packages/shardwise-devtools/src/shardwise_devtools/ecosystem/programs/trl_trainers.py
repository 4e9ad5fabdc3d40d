"""Fine-tuning by trl under DDP: its SFTTrainer, or its DPOTrainer, two steps."""

import argparse
import tempfile

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

options = argparse.ArgumentParser()
options.add_argument("--dp", type=int, default=1)
options.add_argument("--dpo", action="store_true")
asked = options.parse_args()

torch.manual_seed(0)
ends = "<|end_of_text|>"
tokenizer = PreTrainedTokenizerFast(tokenizer_file="assets/tokenizer/tokenizer.json", eos_token=ends, pad_token=ends)
tiny = LlamaConfig(
    vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, use_cache=False, eos_token_id=tokenizer.eos_token_id,
    pad_token_id=tokenizer.pad_token_id,
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    common = {
        "output_dir": folder, "per_device_train_batch_size": 4 // asked.dp, "max_steps": 2, "logging_steps": 1,
        "report_to": [], "use_cpu": True, "bf16": False, "save_strategy": "no", "disable_tqdm": True,
        "gradient_checkpointing": False, "max_length": 32,
    }  # fmt: skip
    if asked.dpo:
        pairs = [{"prompt": f"{n} + 1 =", "chosen": f" {n + 1}", "rejected": f" {n - 1}"} for n in range(10, 26)]
        trainer = DPOTrainer(
            model=LlamaForCausalLM(tiny), ref_model=LlamaForCausalLM(tiny), args=DPOConfig(**common),
            train_dataset=Dataset.from_list(pairs), processing_class=tokenizer,
        )  # fmt: skip
    else:
        texts = [{"text": f"{n} times {n} is {n * n}."} for n in range(10, 26)]
        trainer = SFTTrainer(
            model=LlamaForCausalLM(tiny), args=SFTConfig(**common), train_dataset=Dataset.from_list(texts),
            processing_class=tokenizer,
        )  # fmt: skip
    trainer.train()
