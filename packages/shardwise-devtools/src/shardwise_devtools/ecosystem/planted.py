"""Silent bugs planted in the frameworks: one change each to a file as released, or to the program that uses it.

Nothing crashes by them and training goes on; ``verify`` should name the first tensor that is wrong.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from .environment import HERE, Environment
from .frameworks import Case, Framework


@dataclass(frozen=True)
class Bug:
    """``old`` stands once in ``file`` and is replaced by ``new``.

    ``framework``, ``case``  what is run.
    ``what``  what is wrong, in a few words.
    ``file``  as it is imported, or a script of ``programs``.
    """

    framework: str
    case: str
    what: str
    file: str
    old: str
    new: str

    @property
    def name(self) -> str:
        """By which the page calls the program with the bug."""
        return f"{self.case}: {self.what}"


_TITAN_PLAN = "torchtitan/models/llama3/infra/parallelize.py"
_GRADS = "megatron/core/distributed/finalize_model_grads.py"
_OWN_DATA = (".chunk(size)[rank]", ".chunk(size)[0]")

BUGS = (
    Bug("torchtitan", "llama3, FSDP2", "every rank reads the data of the first",
        "torchtitan/hf_datasets/text_datasets.py", "(ds, dp_rank, dp_world_size)", "(ds, 0, dp_world_size)"),
    Bug("torchtitan", "llama3, FSDP2", "FSDP averages what is divided by the tokens of all ranks",
        _TITAN_PLAN, "module.set_gradient_divide_factor(1.0)", "pass"),
    Bug("torchtitan", "llama3, FSDP2 and TP", "the loss is divided by the tokens of one rank",
        "torchtitan/train.py", "loss = loss_sum / global_valid_tokens", "loss = loss_sum / labels.numel()"),
    Bug("torchtitan", "llama3, FSDP2", "each rank divides by its own tokens",
        "torchtitan/train.py", "global_valid_tokens = dist_utils.dist_sum(local_valid_tokens, batch_mesh)",
        "global_valid_tokens = local_valid_tokens.float()"),
    Bug("torchtitan", "llama3, HSDP", "gradients are not summed over the replicas",
        _TITAN_PLAN, '["dp_replicate", "fsdp"] if parallel_dims.dp_replicate_enabled else ["fsdp"]', '["fsdp"]'),
    Bug("torchtitan", "llama3, HSDP", "tokens are counted over the shards alone",
        "torchtitan/train.py", 'batch_mesh = parallel_dims.get_mesh("batch")\n            global',
        'batch_mesh = parallel_dims.get_mesh("fsdp")\n            global'),
    Bug("torchtitan", "llama3, FSDP2 and TP", "gradients are clipped by the norm of a rank's own shards",
        "torchtitan/distributed/utils.py", "grads = [p.grad for p in parameters if p.grad is not None]\n",
        "grads = [getattr(p.grad, 'to_local', lambda: p.grad)() for p in parameters if p.grad is not None]\n"),
    Bug("torchtitan", "llama3, PP", "each stage clips by its own norm",
        "torchtitan/train.py", 'pp_mesh=parallel_dims.get_optional_mesh("pp")', "pp_mesh=None"),
    Bug("megatron-core", "GPT, DP and TP", "the output of row-parallel layers is not summed",
        "megatron/core/tensor_parallel/layers.py",
        "output_ = reduce_from_tensor_model_parallel_region(output_parallel, group=self.tp_group)",
        "output_ = output_parallel"),
    Bug("megatron-core", "GPT, DP and TP", "backward of column-parallel layers sums nothing",
        "megatron/core/tensor_parallel/layers.py",
        "handle = torch.distributed.all_reduce(grad_input, group=tp_group, async_op=True)",
        "handle = torch.distributed.barrier(group=tp_group, async_op=True)"),
    Bug("megatron-core", "GPT, DP, TP and SP", "gradients of norms are not summed over tp",
        _GRADS, '(config.sequence_parallel and getattr(param, "sequence_parallel", False))', "False"),
    Bug("megatron-core", "GPT, DP and TP", "the vocabulary's softmax is summed on each rank alone",
        "megatron/core/tensor_parallel/cross_entropy.py",
        "torch.distributed.all_reduce(\n            sum_exp_logits,",
        "(lambda *unused, **more: None)(\n            sum_exp_logits,"),
    Bug("megatron-core", "GPT, EP", "every rank reads the data of the first",
        "megatron_gpt.py", ".chunk(dp)[dp_rank]", ".chunk(dp)[0]"),
    Bug("megatron-core", "GPT, distributed optimizer", "gradients are not reduced where each rank steps its part",
        _GRADS, "model_chunk.finish_grad_sync(force_all_reduce=force_all_reduce)", "pass"),
    Bug("megatron-core", "GPT, DP and TP", "foreign ids are looked up too",
        "megatron/core/tensor_parallel/layers.py", "            output_parallel[input_mask, :] = 0.0\n",
        "            pass\n"),
    Bug("megatron-core", "GPT, DP and TP", "gradients are averaged over all ranks and summed over dp",
        "megatron/core/distributed/distributed_data_parallel.py",
        "data_parallel_world_size = self.dp_cp_group.size()",
        "data_parallel_world_size = torch.distributed.get_world_size()"),
    Bug("megatron-core", "GPT, DP and TP", "gradients are clipped by the norm of a rank's own shards",
        "megatron/core/optimizer/clip_grads.py",
        "        torch.distributed.all_reduce(\n            total_norm, op=torch.distributed.ReduceOp.SUM, "
        "group=grad_stats_parallel_group\n        )\n",
        "        pass\n"),
    Bug("megatron-core", "GPT, DP, TP and SP", "backward of row-parallel layers gathers nothing of others",
        "megatron/core/tensor_parallel/mappings.py",
        "_gather_along_first_dim(grad_output, ctx.group, input_split_sizes, use_global_buffer)",
        "torch.cat([grad_output] * ctx.group.size())"),
    Bug("megatron-core", "GPT, EP", "gradients of experts are averaged over their replicas alone",
        "megatron/core/distributed/distributed_data_parallel.py",
        "expert_gradient_scaling_factor = 1.0 / data_parallel_world_size",
        "expert_gradient_scaling_factor = 1.0 / self.expt_dp_group.size()"),
    Bug("transformers", "Llama, its TP plan", "the output of row-parallel layers is not summed",
        "transformers/distributed/tensor_parallel.py",
        "output = output.redistribute(placements=[self.output_layouts])\n            if self.should",
        "output = DTensor.from_local(output.to_local(), mesh, [self.output_layouts], run_check=False)\n"
        "            if self.should"),
    Bug("transformers", "Llama, its TP plan and FSDP2", "every rank reads the data of the first",
        "transformers_llama.py", "[dist.get_rank() // asked.tp]", "[0]"),
    Bug("transformers", "Trainer, DDP", "a loss over the tokens of all ranks is averaged over them as well",
        "transformers/trainer.py", "loss_scale = self.accelerator.num_processes // self.get_tp_size()",
        "loss_scale = 1"),
    Bug("accelerate", "Llama, FSDP2", "every rank reads the data of the first",
        "accelerate/data_loader.py",
        "self.process_index = process_index\n        self.split_batches = split_batches\n        self.even",
        "self.process_index = 0\n        self.split_batches = split_batches\n        self.even"),
    Bug("accelerate", "Llama, FSDP2", "losses are divided by the number of ranks once more",
        "accelerate_fsdp2.py", "accelerator.backward(loss)", "accelerator.backward(loss / accelerator.num_processes)"),
    Bug("lightning", "DDPStrategy", "no sampler shares out the data", "lightning_ddp.py",
        "devices=asked.dp, max_steps=3", "devices=asked.dp, use_distributed_sampler=False, max_steps=3"),
    Bug("lightning", "Fabric, DDP", "of two accumulated batches the first is summed, and not the last",
        "lightning_ddp.py", "enabled=at % 2 == 0", "enabled=at % 2 == 1"),
    Bug("lightning", "ModelParallelStrategy, FSDP2", "a layer is left out of FSDP",
        "lightning_parallel.py", "fully_shard(self, mesh", "fully_shard(self.up, mesh"),
    Bug("deepspeed", "ZeRO 2", "a mean over one rank's samples is divided once more",
        "deepspeed_zero.py", "engine.backward(loss)", "engine.backward(loss / size)"),
    Bug("deepspeed", "ZeRO 3", "gradients are summed, and not averaged",
        "deepspeed/runtime/comm/coalesced_collectives.py", "tensor_partition_flat_buffer.div_(world_sz)", "pass"),
    Bug("deepspeed", "ZeRO 3", "every rank reads the data of the first", "deepspeed_zero.py", *_OWN_DATA),
    Bug("deepspeed", "ZeRO 1", "every rank reads the data of the first", "deepspeed_zero.py", *_OWN_DATA),
    Bug("deepspeed", "Ulysses", "the gradients of one layer are not summed",
        "deepspeed_ulysses.py", "for parameter in model.parameters():\n        dist",
        "for parameter in list(model.parameters())[:-1]:\n        dist"),
    Bug("torchtune", "llama3, FSDP2", "every rank reads the data of the first", "torchtune_llama.py", *_OWN_DATA),
    Bug("ai2-olmo-core", "transformer, FSDP2", "a mean over one rank's tokens is divided once more",
        "olmo_transformer.py", "    loss.backward()", "    (loss / mesh['dp'].size()).backward()"),
    Bug("peft", "Llama, LoRA, DDP", "the model is called beside its wrapper",
        "peft_lora.py", "loss = model(input_ids", "loss = model.module(input_ids"),
    Bug("litgpt", "GPT, Fabric, DDP", "a mean over one rank's tokens is divided once more",
        "litgpt_fabric.py", "fabric.backward(loss / ACCUMULATED)",
        "fabric.backward(loss / ACCUMULATED / fabric.world_size)"),
    Bug("litgpt", "GPT, Fabric, DDP", "no gradients are summed, for every batch counts as accumulated",
        "litgpt_fabric.py", "enabled=accumulating", "enabled=True"),
    Bug("trl", "SFTTrainer, DDP", "each rank divides by its own tokens, and not by those of all",
        "transformers/trainer.py",
        "                if self.args.world_size > 1:\n"
        "                    num_items_in_batch = self.accelerator.gather(",
        "                if False:\n                    num_items_in_batch = self.accelerator.gather("),
    Bug("trl", "SFTTrainer, DDP", "every rank reads the data of the first", "accelerate/data_loader.py",
        "self.process_index = process_index\n        self.split_batches = split_batches\n        self.even",
        "self.process_index = 0\n        self.split_batches = split_batches\n        self.even"),
    Bug("torchao", "float8, FSDP2", "a mean over one rank's samples is divided once more",
        "torchao_float8.py", "    loss.backward()", "    (loss / size).backward()"),
    Bug("torchao", "float8, FSDP2", "the last layers are left out of FSDP",
        "torchao_float8.py", "for block in model:\n    fully_shard(block, mesh=mesh)\nfully_shard(model, mesh=mesh)",
        "fully_shard(model[0], mesh=mesh)"),
    Bug("fairscale", "ShardedDataParallel and OSS", "gradients are summed, and not averaged",
        "fairscale/nn/data_parallel/sharded_ddp.py", "1.0 / dist.get_world_size(self._process_group)",
        "1.0"),
    Bug("fairscale", "layers of tensor parallelism, DDP", "backward of column-parallel layers sums nothing",
        "fairscale/nn/model_parallel/mappings.py",
        "        return _reduce(None, grad_output)", "        return grad_output"),
    Bug("fairscale", "layers of tensor parallelism, DDP", "data parallelism over the groups of tensor parallelism",
        "fairscale_layers.py", "process_group=initialize.get_data_parallel_group()",
        "process_group=initialize.get_model_parallel_group()"),
    Bug("torchrec", "tables split over ranks", "every rank reads the bags of the first",
        "torchrec_tables.py", "mine = ids.chunk(size, 1)[rank]", "mine = ids.chunk(size, 1)[0]"),
    Bug("torchrec", "tables split over ranks", "gradients of the tables are not divided by the number of ranks",
        "torchrec_tables.py", "dist.init_process_group(\"gloo\")",
        "from torchrec.distributed.comm_ops import set_gradient_division\nset_gradient_division(False)\n"
        "dist.init_process_group(\"gloo\")"),
    Bug("diffusers", "UNet, accelerate, DDP", "a mean over one rank's samples is divided once more",
        "diffusers_unet.py", "accelerator.backward(loss)", "accelerator.backward(loss / accelerator.num_processes)"),
    Bug("diffusers", "UNet, accelerate, DDP", "every rank draws the noise of the first from the same seed",
        "diffusers_unet.py", "    noisy = noise_scheduler",
        "    batch[\"noise\"] = torch.randn(batch[\"images\"].shape, generator=torch.Generator().manual_seed(7))\n"
        "    noisy = noise_scheduler"),
)  # fmt: skip


def planted(environment: Environment, framework: Framework, bug: Bug) -> tuple[Case, Path]:
    """The case with ``bug`` in it, and the folder that a run of it imports from first.

    Errors: ValueError if the text that is to be replaced does not stand there once.
    """
    case = next(case for case in framework.cases if case.name == bug.case)
    here = environment.folder / "planted" / "".join(filter(str.isalnum, bug.framework + bug.name))
    shutil.rmtree(here, ignore_errors=True)
    if bug.file.endswith(".py") and "/" not in bug.file:
        here.mkdir(parents=True)
        _replace(HERE / "programs" / bug.file, here / bug.file, bug)
        return replace(case, name=bug.name, program=str(here / bug.file)), here
    package = bug.file.partition("/")[0]
    pin = next(folder for folder in environment.targets(framework) if (folder / package).is_dir())
    shutil.copytree(pin / package, here / package, copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__"))
    (here / bug.file).unlink()
    _replace(pin / bug.file, here / bug.file, bug)
    return replace(case, name=bug.name), here


def _replace(source: Path, target: Path, bug: Bug) -> None:
    text = source.read_text()
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.file} has {bug.old!r} {text.count(bug.old)} times, and not once")
    target.write_text(text.replace(bug.old, bug.new))
