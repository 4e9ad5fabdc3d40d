"""Which frameworks are run, pinned, and how: one entry a framework, with a case for each way of splitting its model.

Their code is as released. A case is a module with its own command line, or one of the short scripts in ``programs``.
In its arguments ``{dp}`` is the size of that axis of the mesh, and ``{world_size}`` the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CHECK, RANKS, VERIFY = "check", "check --ranks all", "verify"
ALL = (CHECK, RANKS, VERIFY)


@dataclass(frozen=True)
class Case:
    """One program.

    ``program``   ``-m module``, or the name of a script in ``programs``.
    ``mesh``      its axes and their sizes, outermost first.
    ``commands``  those of shardwise that run it.
    ``verified``  more arguments, of the runs that are compared.
    """

    name: str
    program: str
    mesh: Mapping[str, int]
    arguments: str = ""
    commands: tuple[str, ...] = ALL
    verified: str = ""


@dataclass(frozen=True)
class Framework:
    """One release: ``pins`` are installed without what they depend on, which ``requirements.txt`` lists.

    ``cannot``  what is not run here, and why. ``defects``: those of the release itself, with what shows them.
    """

    name: str
    pins: tuple[str, ...]
    cases: tuple[Case, ...] = ()
    cannot: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def _titan(name: str, flavor: str, mesh: Mapping[str, int], options: str = "") -> Case:
    model = name.partition(",")[0]
    experts = model == "deepseek_v3" or "moe" in flavor
    return Case(
        name,
        "torchtitan_experts.py" if experts else "-m torchtitan.train",
        mesh,
        f"--model.name {model} --model.flavor {flavor} --model.hf_assets_path assets/tokenizer "
        "--training.dataset c4_test --training.dataset_path assets/c4_test "
        "--training.local_batch_size 2 --training.global_batch_size 8 "
        f"--training.seq_len 64 --training.steps 2 --metrics.log_freq 1 --debug.seed 1 {options}",
        # One batch a step, which is that of all ranks; in float32, where rounding is told from mistakes at once.
        verified="--training.global_batch_size -1 --training.mixed_precision_param float32",
    )


SHARDED = "--parallelism.data_parallel_shard_degree {dp} --parallelism.tensor_parallel_degree {tp}"
DP2, DP4, DP2_TP2, PP2_DP2 = {"dp": 2}, {"dp": 4}, {"dp": 2, "tp": 2}, {"pp": 2, "dp": 2}

FRAMEWORKS = (
    Framework(
        "torchtitan",
        ("torchtitan==0.2.2", "torchao==0.18.0"),
        (
            _titan("llama3, FSDP2 and TP", "debugmodel", DP2_TP2, SHARDED),
            _titan("llama3, FSDP2", "debugmodel", DP4, "--parallelism.data_parallel_shard_degree {dp}"),
            _titan(
                "llama3, HSDP", "debugmodel", {"replicate": 2, "shard": 2},
                "--parallelism.data_parallel_replicate_degree {replicate} "
                "--parallelism.data_parallel_shard_degree {shard}",
            ),
            _titan(
                "llama3, PP", "debugmodel", PP2_DP2,
                "--parallelism.data_parallel_shard_degree {dp} --parallelism.pipeline_parallel_degree {pp}",
            ),
            _titan("qwen3, FSDP2 and TP", "debugmodel", DP2_TP2, SHARDED),
            _titan("qwen3, MoE, FSDP2 and TP", "debugmodel_moe", DP2_TP2, SHARDED),
            _titan("deepseek_v3, FSDP2 and TP", "debugmodel", DP2_TP2, SHARDED),
            _titan(
                "deepseek_v3, FSDP2 and EP", "debugmodel", {"dp": 2, "ep": 2},
                "--parallelism.data_parallel_shard_degree {world_size} --parallelism.expert_parallel_degree {ep}",
            ),
        ),
        (
            "0.3.0: its default back end (`spmd_types`) gives plain tensors to `fully_shard(dp_mesh_dims=...)`, which "
            "torch 2.13.0 refuses; with `partial_dtensor` and `full_dtensor` one step runs, then it calls "
            "`torch.distributed.set_timeout`, which torch 2.13.0 does not have",
        ),
        (
            "under TP without EP, where scores multiply what the experts give (`score_before_experts=False`: "
            "deepseek_v3, qwen3), the gradient of `moe.router.gate` is not summed over tp: `NoParallel` gives a local "
            "tensor whose gradients count as equal (`to_local()` without `grad_placements`), and each rank's comes of "
            "its part of the experts' weights. `programs/torchtitan_router.py after` shows it: the first element is "
            "-2.9169 on one rank, -1.2374 and -1.6795 on two, and the replicas part; with `before` all have the same",
            "under PP gradients are those of the sum of the losses: the schedule is given the loss summed over tokens"
            " and `scale_grads=False`, and only what is logged is divided by the tokens (`train.py:523`); without PP "
            "the loss is divided before backward (`train.py:538`). With 256 tokens a step the norm that is logged is "
            "2244.8, and 8.77 on one rank from the same weights and batches. Clipping to a norm of 1 hides it; no "
            "longer once the norm is below 1",
        ),
    ),
    Framework(
        "megatron-core",
        ("megatron-core==0.16.1",),
        (
            Case("GPT, DP and TP", "megatron_gpt.py", DP2_TP2, "--tp {tp}"),
            Case("GPT, DP, TP and SP", "megatron_gpt.py", DP2_TP2, "--tp {tp} --sp"),
            Case("GPT, PP and DP", "megatron_gpt.py", PP2_DP2, "--pp {pp}", verified="--by-name"),
            Case("GPT, distributed optimizer", "megatron_gpt.py", DP2_TP2, "--tp {tp} --distributed-optimizer"),
            Case("GPT, EP", "megatron_gpt.py", DP4, "--ep {dp} --experts 4", verified="--by-name"),
            Case(
                "GPT, TP, SP and EP", "megatron_gpt.py", DP2_TP2, "--tp {tp} --sp --ep {dp} --experts 4",
                verified="--by-name",
            ),
        ),
        (
            "context parallelism: 0.16.1 has it in Transformer Engine only, which needs CUDA",
            "releases from 0.17.0 on: they need Python 3.12, and the torch at hand is for 3.11",
        ),
        (
            "without Transformer Engine every mixture of experts raises `NameError: name 'te_general_gemm' is not "
            "defined` in its router (`transformer/moe/moe_utils.py`): the name is set only where the import succeeds. "
            "Any GPT with `num_moe_experts` shows it; `programs/megatron_gpt.py` sets the name",
        ),
    ),
    Framework(
        "transformers",
        ("transformers==5.23.0", "accelerate==1.15.0"),
        (
            Case("Llama, its TP plan", "transformers_llama.py", {"tp": 2}, "--tp {tp}"),
            Case("Llama, its TP plan and FSDP2", "transformers_llama.py", DP2_TP2, "--tp {tp} --fsdp {dp}"),
            Case("Trainer, DDP", "transformers_trainer.py", DP2, "--dp {dp}"),
        ),
    ),
    Framework(
        "accelerate",
        ("accelerate==1.15.0", "transformers==5.23.0"),
        (Case("Llama, FSDP2", "accelerate_fsdp2.py", DP4), Case("classifier, DDP", "accelerate_ddp.py", DP2)),
    ),
    Framework(
        "lightning",
        ("lightning==2.6.6", "pytorch-lightning==2.6.6"),
        (
            Case("ModelParallelStrategy, FSDP2", "lightning_parallel.py", DP4, "--dp {dp}"),
            Case("ModelParallelStrategy, FSDP2 and TP", "lightning_parallel.py", DP2_TP2, "--dp {dp} --tp {tp}"),
            Case("DDPStrategy", "lightning_ddp.py", DP2, "--dp {dp}"),
            Case("Fabric, DDP", "lightning_ddp.py", DP2, "--dp {dp} --fabric"),
        ),
        ("FSDP1, in Fabric: it asks for a GPU",),
    ),
    Framework(
        "deepspeed",
        ("deepspeed==0.19.8",),
        (
            *(Case(f"ZeRO {stage}", "deepspeed_zero.py", {"dp": 2}, f"--stage {stage}") for stage in (1, 2, 3)),
            Case("Ulysses", "deepspeed_ulysses.py", {"sp": 2}),
        ),
        variables={"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0"},
    ),
    Framework(
        "torchtune",
        ("torchtune==0.6.1", "torchao==0.15.0"),
        (
            Case("llama3, FSDP2", "torchtune_llama.py", {"dp": 2}),
            Case("llama3, LoRA, FSDP2", "torchtune_llama.py", {"dp": 2}, "--lora"),
        ),
    ),
    Framework(
        "ai2-olmo-core",
        ("ai2-olmo-core==3.0.0",),
        (
            Case("transformer, FSDP2", "olmo_transformer.py", DP4),
            Case("transformer, TP", "olmo_transformer.py", {"tp": 2}, "--tp {tp}"),
        ),
    ),
    Framework(
        "peft",
        ("peft==0.21.2", "transformers==5.23.0", "accelerate==1.15.0"),
        (Case("Llama, LoRA, DDP", "peft_lora.py", DP2),),
    ),
    Framework(
        "litgpt",
        ("litgpt==0.5.13", "lightning==2.6.6", "pytorch-lightning==2.6.6"),
        (
            Case("GPT, Fabric, DDP", "litgpt_fabric.py", DP2, "--dp {dp}"),
            Case("GPT, Fabric, FSDP2", "litgpt_fabric.py", DP2, "--dp {dp} --fsdp"),
        ),
    ),
    Framework(
        "trl",
        ("trl==1.16.0", "transformers==5.23.0", "accelerate==1.15.0"),
        (
            Case("SFTTrainer, DDP", "trl_trainers.py", DP2, "--dp {dp}"),
            Case("DPOTrainer, DDP", "trl_trainers.py", DP2, "--dp {dp} --dpo"),
        ),
    ),
    Framework("torchao", ("torchao==0.18.0",), (Case("float8, FSDP2", "torchao_float8.py", DP2),)),
    Framework(
        "fairscale",
        ("fairscale==0.4.13",),
        (
            Case("ShardedDataParallel and OSS", "fairscale_sharded.py", DP2),
            Case("layers of tensor parallelism, DDP", "fairscale_layers.py", DP2_TP2, "--tp {tp}"),
        ),
        (
            "its FullyShardedDataParallel: it copies to a GPU",
            "MOELayer: how many tokens an expert takes follows from those of a rank, and its second expert is drawn",
        ),
    ),
    Framework(
        "torchrec",
        ("torchrec==1.8.0", "fbgemm-gpu-cpu==1.8.0", "tensordict==0.15.3"),
        (Case("tables split over ranks", "torchrec_tables.py", DP2),),
    ),
    Framework(
        "diffusers",
        ("diffusers==0.38.0", "accelerate==1.15.0", "transformers==5.23.0"),
        (Case("UNet, accelerate, DDP", "diffusers_unet.py", DP2),),
    ),
    Framework("timm", (), cannot=("it imports torchvision, whose release for this torch has no operators on the CPU",)),
    Framework("nanotron", (), cannot=("there is no entry for it: its last release could not be imported",)),
)  # fmt: skip
