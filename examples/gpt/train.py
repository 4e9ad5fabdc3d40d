"""Train a small GPT with data, tensor and sequence parallelism; README.md has the commands."""

import argparse
import dataclasses

import torch
import torch.distributed as dist
from data import PAD, Batch, make_batch
from layers import vocab_parallel_cross_entropy
from model import GPT, PRESETS
from parallel import Init, Parallel, init_mesh
from torch import Tensor

import shardwise as spmd
from shardwise import P, R, S


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--dp", type=int, help="ranks that split the batch; default: the ranks that tp leaves")
    parser.add_argument("--tp", type=int, help="ranks that split each weight; default: 2 if the ranks are even, else 1")
    parser.add_argument("--sequence-parallel", action="store_true", help="split activations between blocks over tp")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="tiny", help="sizes; the options below override")
    for field in dataclasses.fields(PRESETS["tiny"]):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default))
    parser.add_argument("--batch", type=int, default=8, help="windows in the batch, all dp ranks together")
    parser.add_argument("--length", type=int, default=32, help="tokens in a window")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or meta to check shapes and types only")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    return parser.parse_args(argv)


def build(args: argparse.Namespace, parallel: Parallel) -> GPT:
    chosen = {field.name: getattr(args, field.name) for field in dataclasses.fields(PRESETS[args.preset])}
    config = dataclasses.replace(
        PRESETS[args.preset], **{name: value for name, value in chosen.items() if value is not None}
    )
    init = Init(parallel, args.seed, torch.device(args.device), getattr(torch, args.dtype))
    return GPT(config, init, parallel)


def loss_of(model: GPT, batch: Batch, parallel: Parallel) -> Tensor:
    """This dp rank's part of the mean over all tokens of the batch: P@dp, I@tp."""
    targets_N = batch.targets_BT.flatten()
    loss_N = vocab_parallel_cross_entropy(model(batch.tokens_BT), targets_N, parallel)
    counts_N = targets_N != PAD
    count = spmd.all_reduce(spmd.sum(counts_N, "dp", src=S(0), dst=P), "dp", src=P, dst=R)
    return spmd.sum(loss_N * counts_N, "dp", src=S(0), dst=P) / count


def sum_gradients(model: GPT, parallel: Parallel) -> None:
    """Parameters are R@dp, so their gradients are P@dp and owe one sum."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=parallel.mesh.get_group("dp"))


def train(args: argparse.Namespace) -> tuple[GPT, list[float]]:
    """The trained model, with the gradients of the last step, and the loss of each step."""
    mesh = init_mesh(args.dp, args.tp, args.device)
    parallel = Parallel(mesh, args.sequence_parallel)
    # Different numbers on every rank: dropout sees only values that differ between ranks anyway.
    torch.manual_seed(args.seed + dist.get_rank())
    losses = []
    with spmd.set_current_mesh(mesh):
        model = build(args, parallel)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        for step in range(args.steps):
            batch = make_batch(step, args.batch, args.length, parallel, args.seed, torch.device(args.device))
            optimizer.zero_grad()
            loss = loss_of(model, batch, parallel)
            loss.backward()
            sum_gradients(model, parallel)
            optimizer.step()
            total = spmd.all_reduce(loss.detach(), "dp", src=P, dst=R)
            spmd.checkpoint_value("mean loss", total)
            losses.append(float("nan") if total.is_meta else total.item())
            if dist.get_rank() == 0:
                print(f"step {step:3d}  loss {losses[-1]:.4f}")
    return model, losses


if __name__ == "__main__":
    train(parse())
    dist.destroy_process_group()
