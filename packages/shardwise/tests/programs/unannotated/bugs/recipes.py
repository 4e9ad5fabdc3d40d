"""Recipes and trainers of frameworks, in small: accumulation, adapters, manual optimisation."""

from .bug import CLIP, GRADIENT, TRAINED, Bug

SCALED = f"loss|{GRADIENT}|{CLIP}"

BUGS = [
    Bug(
        "lora_recipe",
        "each rank divides by its own tokens",
        "            dist.all_reduce(num_tokens)\n",
        "            num_tokens *= world\n",
        SCALED,
    ),
    Bug("lora_recipe", "FSDP's mean is not made up for", "world / num_tokens)", "1 / num_tokens)", SCALED),
    Bug(
        "lora_recipe",
        "every rank trains on the first rows",
        "tokens[rank::world, :-1], labels[rank::world]",
        "tokens[0::world, :-1], labels[0::world]",
        "input 0",
    ),
    Bug(
        "async_saves",
        "every rank trains on the first rows",
        "tensor_split(world)[rank]",
        "tensor_split(world)[0]",
        "input 0",
    ),
    Bug(
        "accelerated",
        "DDP's mean is not made up for",
        "loss = loss * accelerator.num_processes",
        "loss = loss * 1",
        SCALED,
    ),
    Bug(
        "accelerated",
        "each rank counts its own items",
        "accelerator.reduce(counts.sum())",
        "counts.sum() * accelerator.num_processes",
        SCALED,
    ),
    Bug(
        "accelerated",
        "nothing is ever synchronised",
        "contextlib.nullcontext() if self.sync_gradients else",
        "contextlib.nullcontext() if self.num_processes == 1 else",
        TRAINED,
    ),
    Bug(
        "accelerated",
        "every rank reads the first part of a batch",
        "batch[size * self.process_index : size * (self.process_index + 1)]",
        "batch[:size]",
        "input ",
    ),
    Bug(
        "manual_gan",
        "no backward is ever synchronised",
        "block_backward_sync(at < len(batches) - 1)",
        "block_backward_sync(dist.get_world_size() > 1)",
        GRADIENT,
    ),
    Bug("manual_gan", "the loss is computed past DDP", "strategy.model(what, real,", "module(what, real,", GRADIENT),
    Bug("manual_gan", "the same noise", "noise.chunk(world)[rank]", "noise.chunk(world)[0]", "input "),
    Bug(
        "train_module",
        "each rank counts its own tokens",
        "        dist.all_reduce(tokens_for_loss)\n",
        "        tokens_for_loss = tokens_for_loss * self.world\n",
        SCALED,
    ),
    Bug(
        "train_module",
        "FSDP's mean is not made up for",
        "div_factor = tokens_for_loss / self.world",
        "div_factor = tokens_for_loss / 1",
        SCALED,
    ),
    Bug(
        "train_module",
        "no micro-batch is the last",
        "self.model.set_requires_gradient_sync(at == len(micro) - 1)",
        "self.model.set_requires_gradient_sync(self.world == 1)",
        TRAINED,
    ),
    Bug(
        "train_module",
        "all is sharded and not replicated",
        'mesh_dim_names=("replicate", "shard"))\n',
        'mesh_dim_names=("replicate", "shard"))["shard"]\n',
        GRADIENT,
    ),
]
