"""GPT of Megatron-Core with a parallelism on the command line: two steps on its own mock data."""

import argparse
import os
import re
import zlib

import numpy as np
import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

if not hasattr(moe_utils, "te_general_gemm"):  # 0.16.1 asks for it without having looked for it
    moe_utils.te_general_gemm = None


class Norm(torch.nn.LayerNorm):
    """A layer norm whose gradients are summed over tensor parallel ranks under sequence parallelism."""

    def __init__(self, config, hidden_size, eps):
        super().__init__(hidden_size, eps)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel


options = argparse.ArgumentParser()
for name in ("tp", "pp", "ep", "cp"):
    options.add_argument(f"--{name}", type=int, default=1)
options.add_argument("--sp", action="store_true")
options.add_argument("--experts", type=int, default=0)
options.add_argument("--distributed-optimizer", action="store_true")
options.add_argument("--by-name", action="store_true", help="weights by their names, as from a checkpoint")
asked = options.parse_args()

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl")
parallel_state.initialize_model_parallel(
    tensor_model_parallel_size=asked.tp,
    pipeline_model_parallel_size=asked.pp,
    context_parallel_size=asked.cp,
    expert_model_parallel_size=asked.ep,
)
model_parallel_cuda_manual_seed(123)
config = TransformerConfig(
    num_layers=4,
    hidden_size=32,
    num_attention_heads=4,
    use_cpu_initialization=True,
    pipeline_dtype=torch.float32,
    tensor_model_parallel_size=asked.tp,
    pipeline_model_parallel_size=asked.pp,
    context_parallel_size=asked.cp,
    expert_model_parallel_size=asked.ep,
    sequence_parallel=asked.sp and asked.tp > 1,
    num_moe_experts=asked.experts or None,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    masked_softmax_fusion=False,
    bias_dropout_fusion=False,
    gradient_accumulation_fusion=False,
    add_bias_linear=not asked.experts,
    moe_token_dispatcher_type="alltoall",
    **({} if not asked.by_name else dict.fromkeys(("init_method", "output_layer_init_method"), lambda weight: weight)),
)
spec = get_gpt_layer_local_spec(num_experts=asked.experts or None, moe_grouped_gemm=False)
spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = Norm
block = TransformerBlockSubmodules(layer_specs=[spec] * (4 // asked.pp), layer_norm=Norm)
model = GPTModel(
    config=config,
    transformer_layer_spec=block,
    vocab_size=128,
    max_sequence_length=32,
    # What is learned is drawn by torch itself, on the first stage alone.
    position_embedding_type="rope" if asked.by_name else "learned_absolute",
    pre_process=parallel_state.is_pipeline_first_stage(),
    post_process=parallel_state.is_pipeline_last_stage(),
).cuda()


def fill(model):
    """Weights as a checkpoint would give them: drawn for the name that a parameter has in the whole model, and cut."""
    layers = 4 // asked.pp * parallel_state.get_pipeline_model_parallel_rank()
    experts = asked.experts // asked.ep * parallel_state.get_expert_model_parallel_rank()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            continue
        name = re.sub(r"(?<=layers\.)\d+", lambda at: str(int(at[0]) + layers), name)
        name = re.sub(r"(?<=local_experts\.)\d+", lambda at: str(int(at[0]) + experts), name)
        shape, cut = list(parameter.shape), getattr(parameter, "partition_dim", -1)
        cut = cut if getattr(parameter, "tensor_model_parallel", False) else -1
        if cut >= 0:
            shape[cut] *= asked.tp
        whole = np.random.default_rng(zlib.crc32(name.encode())).normal(0, 0.1, shape).astype(np.float32)
        piece = np.split(whole, asked.tp, cut)[parallel_state.get_tensor_model_parallel_rank()] if cut >= 0 else whole
        parameter.data.copy_(torch.from_numpy(piece.copy()))


if asked.by_name:
    fill(model)
model = DistributedDataParallel(
    config=config,
    module=model,
    ddp_config=DistributedDataParallelConfig(use_distributed_optimizer=asked.distributed_optimizer),
)
config.finalize_model_grads_func = finalize_model_grads
optimizer = get_megatron_optimizer(
    OptimizerConfig(optimizer="adam", lr=1e-3, use_distributed_optimizer=asked.distributed_optimizer), [model]
)
forward_backward = get_forward_backward_func()
dp, dp_rank = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
generator = torch.Generator().manual_seed(1)
tokens = torch.randint(0, 128, (2, 8, 17), generator=generator)


def forward_step(data, model):
    local = next(data).cuda()
    inputs, labels = local[:, :-1].contiguous(), local[:, 1:].contiguous()
    positions = torch.arange(16, device="cuda").expand_as(inputs)
    mask = torch.ones(1, 1, 16, 16, device="cuda").tril() < 0.5
    losses = model(inputs, positions, mask, labels=labels)
    return losses, lambda output: (output.float().mean(), {"loss": output.detach().mean()})


for step in range(2):
    mine = tokens[step].chunk(dp)[dp_rank].chunk(2)
    model.zero_grad_buffer()
    optimizer.zero_grad()
    losses = forward_backward(
        forward_step_func=forward_step,
        data_iterator=iter(mine),
        model=[model],
        num_microbatches=2,
        seq_length=16,
        micro_batch_size=len(mine[0]),
        forward_only=False,
    )
    optimizer.step()
    print("step", step, losses)
