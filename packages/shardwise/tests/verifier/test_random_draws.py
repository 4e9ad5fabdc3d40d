"""Do the ranks of a mesh draw what one rank draws, where torch fills DTensors piece by piece, or recomputes?"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.interop.tensors.local_form import local_tensor, own_piece
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify, verify_subject
from shardwise.worlds.processes import run_processes

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("verify")]

BATCH = torch.linspace(-1, 1, 4 * 6).view(4, 6)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 10, bias=False), nn.Linear(10, 5, bias=False)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def trained(model, mesh, draw):
    """Two steps of a model whose weights are drawn by ``draw`` when they are pieces already."""
    model.to_empty(device="cpu")
    torch.manual_seed(5)
    with torch.no_grad():
        draw(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    here = BATCH.chunk(mesh["dp"].size())[mesh["dp"].get_local_rank()]
    for _ in range(2):
        loss = model(here).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def by_method(model):
    for parameter in model.parameters():
        parameter.normal_(std=0.5)


def by_init(model):
    nn.init.trunc_normal_(model.up.weight, std=0.3)
    nn.init.kaiming_uniform_(model.down.weight)


def by_copy(model):
    for parameter in model.parameters():
        parameter.copy_(torch.rand_like(parameter) - 0.5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("draw", [by_method, by_init, by_copy])
def test_pieces_of_parameters_are_those_of_the_whole(draw):
    def program(mesh):
        with torch.device("meta"):
            model = Block()
        if mesh["tp"].size() > 1:
            parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
        trained(model, mesh, draw)

    verdict = verify(program, {"dp": 2, "tp": 2})
    assert verdict.exit_code == 0, str(verdict)
    assert verdict.numbers is not None
    assert verdict.numbers.disagreements == ()
    assert verdict.numbers.compared >= 8, "parameters, gradients and losses are as on one rank"


@pytest.mark.slow
def test_ranks_that_are_seeded_otherwise_are_found():
    def program(mesh):
        model = Block()
        torch.manual_seed(7 + (dist.get_rank() if mesh.size() > 1 else 0))
        weight = distribute_tensor(model.up.weight.detach(), mesh, [Replicate(), Replicate()]).requires_grad_()
        with torch.no_grad():
            weight.normal_()
        model.up.weight = nn.Parameter(weight.to_local())
        trained_without_pieces(model)

    def trained_without_pieces(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(BATCH).square().mean().backward()
        optimizer.step()

    verdict = verify(program, {"dp": 2, "tp": 1})
    assert verdict.exit_code != 0, str(verdict)


def pieces_hold():
    """On each rank: whether the piece is the one that torch gives it, for plain shards and for FSDP over TP."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    whole = torch.arange(7 * 5.0).view(7, 5)
    held = []
    for placements in ([Shard(0), Replicate()], [Shard(1), Shard(0)], [Shard(0), Shard(0)], [Replicate(), Replicate()]):
        made = distribute_tensor(whole, mesh, placements)
        held.append(torch.equal(own_piece(whole, made), made.to_local()))
    model = nn.Linear(5, 7, bias=False)
    with torch.no_grad():
        model.weight.copy_(whole)
    parallelize_module(model, mesh["tp"], ColwiseParallel())
    fully_shard(model, mesh=mesh["dp"])
    assert isinstance(model.weight, DTensor)
    held.append(torch.equal(own_piece(whole, model.weight), local_tensor(model.weight)))
    return held


def test_a_piece_is_the_one_that_torch_gives():
    assert run_processes(pieces_hold, 4) == [[True] * 5] * 4


RECOMPUTED = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def hidden(self, x):
        return nn.functional.dropout(self.first(x), 0.5).tanh()

    def forward(self, x):
        return self.last(checkpoint(self.hidden, x, use_reentrant=REENTRANT))


model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.Generator().manual_seed(1)
torch.manual_seed(100 + rank)
for step in range(2):
    x = torch.randn(8, 4, generator=rows).chunk(world)[rank].requires_grad_()
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("reentrant", [False, True])
def test_what_backward_computes_once_more_draws_as_forward_did(tmp_path, reentrant):
    """Each rank drops elements of its own rows, and the one rank those of all, in backward too."""
    script = tmp_path / "recomputed.py"
    script.write_text(RECOMPUTED.replace("REENTRANT", str(reentrant)), "utf-8")
    verdict = verify_subject(Script(Program(path=str(script))), {"dp": 2}, VerifyOptions(strict=False))
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert "one rank was given what all ranks drew together: 2 random draws" in str(verdict)
