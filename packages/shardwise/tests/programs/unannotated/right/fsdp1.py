# FullyShardedDataParallel with a wrapping policy, checkpointed layers, no_sync and clipping. mesh: dp=2
import contextlib
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(5, 8)
        self.layers = nn.Sequential(
            *[nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)]
        )
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.layers(self.embed(x)).mean(1))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer})
    model = FSDP(
        Encoder(),
        auto_wrap_policy=policy,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.TransformerEncoderLayer))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    gen = torch.Generator().manual_seed(3)
    for step in range(3):
        total = torch.zeros(())
        for micro in range(2):
            x, y = torch.randn(8, 4, 5, generator=gen), torch.randint(2, (8,), generator=gen)
            with model.no_sync() if micro == 0 else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(model(x.chunk(world)[rank]), y.chunk(world)[rank]) / 2
                loss.backward()
            total += loss.detach()
        model.clip_grad_norm_(0.3)
        opt.step()
        opt.zero_grad()
        dist.all_reduce(total)
        if rank == 0:
            print(f"{step} {total.item() / world:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
