"""All that stands around the model in a training step: random streams, token counts, sums of gradients, clipping."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import piece, start, whole
from torch import Tensor, nn

import shardwise as spmd
from shardwise import I, P, R, S
from shardwise.train import auxiliary, rng, token_count, token_mean

mesh = start("dp", "tp")
BATCH, MICRO, WORDS, WIDTH, HIDDEN, IGNORED = 8, 2, 10, 6, 8, -100
NOISE, PENALTY, LARGEST_NORM = 0.1, 0.01, 1.7


class Tagger(nn.Module):
    """A table of words that is used at both ends, and a layer between whose hidden features are split over tp."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(whole(0, WORDS, WIDTH))
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.up = nn.Parameter(piece(whole(1, HIDDEN, WIDTH), mesh, tp=0))
        self.down = nn.Parameter(piece(whole(2, WIDTH, HIDDEN), mesh, tp=1))
        self.shared, self.split = [self.table, self.scale], [self.up, self.down]
        spmd.assert_type(self.shared, {"dp": R, "tp": I})
        spmd.assert_type(self.up, {"dp": R, "tp": S(0)})
        spmd.assert_type(self.down, {"dp": R, "tp": S(1)})

    def forward(self, words: Tensor, noise: Tensor) -> Tensor:
        """[N] words to [N, WORDS] scores, with one [WIDTH] noise on the features of all words."""
        x = F.embedding(words, self.table) * (1 + NOISE * noise)
        h = spmd.convert(F.rms_norm(x, (WIDTH,), self.scale), "tp", src=I, dst=R)
        y = spmd.linear(F.gelu(F.linear(h, self.up)), self.down, out_partial_axes="tp")
        return F.linear(x + spmd.all_reduce(y, "tp", src=P, dst=I), self.table)


def batch_of(step: int) -> list[tuple[Tensor, Tensor]]:
    """The micro-batches of a step: [MICRO] words and their targets, this dp rank's. Fewer ranks have more of them."""
    generator = torch.Generator().manual_seed(step)
    words = torch.randint(WORDS, (BATCH,), generator=generator)
    targets = torch.randint(WORDS, (BATCH,), generator=generator)
    targets[[0, 2, 5]] = IGNORED
    rows = MICRO * mesh["dp"].size()
    return [
        spmd.assert_type((piece(some, mesh, dp=0), piece(their, mesh, dp=0)), {"dp": S(0), "tp": I})
        for some, their in zip(words.split(rows), targets.split(rows), strict=True)
    ]


def sum_gradients(model: Tagger) -> None:
    """Parameters are R@dp, so their gradients are P@dp and owe one sum."""
    for weight in model.parameters():
        dist.all_reduce(weight.grad, group=mesh.get_group("dp"))


def clip(model: Tagger) -> None:
    """Scale the gradients so that the norm of all is at most LARGEST_NORM: it is more in the second step."""
    shared = torch.stack([weight.grad.square().sum() for weight in model.shared]).sum()
    pieces = torch.stack([spmd.sum(weight.grad.square(), out_partial_axes="tp") for weight in model.split]).sum()
    norm = (spmd.all_reduce(pieces, "tp", src=P, dst=I) + shared).sqrt()
    for weight in model.parameters():
        weight.grad.mul_((LARGEST_NORM / norm).clamp(max=1.0))


with spmd.set_current_mesh(mesh):
    model = Tagger()
    stream = rng(0, synchronised=("dp", "tp"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        batch = batch_of(step)
        count = sum(token_count(targets != IGNORED, "dp") for _, targets in batch)
        total = torch.zeros(())
        with stream:
            noise = torch.randn(WIDTH)
        for words, targets in batch:
            losses = F.cross_entropy(model(words, noise), targets, ignore_index=IGNORED, reduction="none")
            loss = token_mean(losses, "dp", count=count)
            penalty = PENALTY / len(batch) * model.table.square().sum()
            loss = loss + auxiliary(penalty, "dp", src=R)
            loss.backward()
            total = total + spmd.all_reduce(loss.detach(), "dp", src=P, dst=R)
        spmd.checkpoint_value("mean loss", total)
        print(f"step {step}  loss {total.item():.4f}")
        sum_gradients(model)
        clip(model)
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
