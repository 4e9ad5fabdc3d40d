"""Is the loss of unequal ranks, and its gradient, that of one device with all tokens?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.result import Collector
from shardwise.train.normalise import auxiliary, token_count, token_mean
from shardwise.worlds.world import InProcessWorld, run_processes

BATCH, LENGTH, CLASSES, IGNORED = 4, 6, 5, -100


def on_mesh(body: Any) -> list[Any]:
    """``body(mesh)`` on the four ranks of a mesh dp=2, cp=2, under a check that must be clean in both modes."""

    def rank(local: bool) -> Any:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
        collector = Collector()
        with spmd.set_current_mesh(mesh), checking(local=local, collect=collector):
            result = body(mesh)
        assert [str(finding) for finding in collector.result().findings] == []
        return result

    InProcessWorld(4).run(rank, False)
    return InProcessWorld(4).run(rank, True)


def whole(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def targets_with(ignored: str) -> torch.Tensor:
    """Class of every token, [batch, length]; some do not count."""
    targets = torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) % CLASSES
    if ignored == "some":
        targets[0, 1:] = targets[3, 4] = IGNORED
    elif ignored == "all of one rank":
        targets[:2, :3] = IGNORED
    elif ignored == "all":
        targets[:] = IGNORED
    return targets


def piece(full: torch.Tensor, mesh: Any) -> torch.Tensor:
    mine = full.chunk(2, 0)[mesh.get_local_rank("dp")].chunk(2, 1)[mesh.get_local_rank("cp")].clone()
    return spmd.assert_type(mine, {"dp": S(0), "cp": S(1)})


def model(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) @ weight


def losses_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.movedim(-1, 1), targets, ignore_index=IGNORED, reduction="none")


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("ignored", ["none", "some", "all of one rank", "all"])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_loss_and_gradient_are_those_of_one_device(ignored: str, micro_batches: int) -> None:
    inputs = [whole(seed, BATCH, LENGTH, 3) for seed in range(micro_batches)]
    targets = [targets_with(ignored if step == 0 else "some") for step in range(micro_batches)]
    expected = whole(9, 3, CLASSES).requires_grad_()
    kept = torch.cat([target.flatten() != IGNORED for target in targets])
    everything = torch.cat([losses_of(model(x, expected), y).flatten() for x, y in zip(inputs, targets, strict=True)])
    loss = everything[kept].sum() / max(int(kept.sum()), 1)
    loss.backward()

    def body(mesh: Any) -> tuple[torch.Tensor, torch.Tensor]:
        weight = spmd.assert_type(torch.nn.Parameter(whole(9, 3, CLASSES)), {"dp": R, "cp": R})
        mine = [(piece(x, mesh), piece(y, mesh)) for x, y in zip(inputs, targets, strict=True)]
        count = sum(token_count(y != IGNORED, "dp", "cp") for _, y in mine)
        reported = torch.zeros((), dtype=torch.float64)
        for x, y in mine:
            term = token_mean(losses_of(model(x, weight), y), "dp", "cp", mask=y != IGNORED, count=count)
            assert spmd.get_local_type(term) == {
                spmd.normalize_axis("dp"): P, spmd.normalize_axis("cp"): P,
            }  # fmt: skip
            term.backward()
            total = spmd.all_reduce(spmd.all_reduce(term.detach(), "dp", src=P, dst=R), "cp", src=P, dst=R)
            reported = reported + total
        gradient = spmd.all_reduce(spmd.all_reduce(weight.grad, "dp", src=P, dst=R), "cp", src=P, dst=R)
        return reported.clone(), gradient.clone()

    for reported, gradient in on_mesh(body):
        torch.testing.assert_close(reported, loss.detach(), rtol=1e-12, atol=0)
        torch.testing.assert_close(gradient, expected.grad, rtol=1e-12, atol=1e-15)


@pytest.mark.processes
def test_a_wrapper_that_averages_is_made_up_for() -> None:
    """DistributedDataParallel divides by its ranks what is a term of the global mean already."""
    data, start = whole(1, BATCH, 3), whole(9, 3, 1)
    expected = start.clone().requires_grad_()
    (data @ expected).square().mean().backward()

    def rank() -> torch.Tensor:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        with spmd.set_current_mesh(mesh):
            model = torch.nn.Linear(3, 1, bias=False).double()
            model.weight.data.copy_(start.T)
            spmd.assert_type(model.weight, {"dp": R})
            ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=mesh.get_group())
            x = spmd.assert_type(data.chunk(2)[mesh.get_local_rank()].clone(), {"dp": S(0)})
            token_mean(ddp(x).square(), "dp", averaged="dp").backward()
            return model.weight.grad.detach()

    for gradient in run_processes(rank, 2):
        torch.testing.assert_close(gradient.T, expected.grad)


def test_without_a_mask_every_token_counts() -> None:
    full = whole(1, BATCH, LENGTH)
    term = on_mesh(lambda mesh: token_mean(piece(full, mesh), "dp", "cp").clone())
    torch.testing.assert_close(sum(term), full.mean())


def test_a_count_that_is_known_is_not_communicated() -> None:
    full = whole(1, BATCH, LENGTH)
    term = on_mesh(lambda mesh: token_mean(piece(full, mesh), "dp", "cp", count=BATCH * LENGTH).clone())
    torch.testing.assert_close(sum(term), full.mean())


def test_a_loss_that_does_not_count_may_be_infinite() -> None:
    full = whole(1, BATCH, LENGTH)
    full[0, 0] = torch.inf
    full[1, 1] = torch.nan
    kept = full.isfinite()
    term = on_mesh(lambda mesh: token_mean(piece(full, mesh), "dp", "cp", mask=piece(kept, mesh)).clone())
    torch.testing.assert_close(sum(term), full[kept].mean())


@pytest.mark.parametrize("src", [R, V])
def test_an_auxiliary_loss_counts_once(src: Any) -> None:
    def body(mesh: Any) -> tuple[torch.Tensor, torch.Tensor]:
        value = whole(3) if src is R else whole(4 + mesh.get_local_rank("dp") + 2 * mesh.get_local_rank("cp"))
        mine = spmd.assert_type(value.requires_grad_(), {"dp": src, "cp": src})
        term = auxiliary(mine, "dp", "cp", src=src)
        term.backward()
        return term.detach(), mine.grad

    values = [whole(3)] if src is R else [whole(4 + rank) for rank in range(4)]
    terms, gradients = zip(*on_mesh(body), strict=True)
    torch.testing.assert_close(sum(terms), sum(values) / len(values))
    torch.testing.assert_close(sum(gradients), torch.ones((), dtype=torch.float64))


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        (lambda x: token_mean(x), "SW905", "token_mean needs the mesh axes"),
        (lambda x: token_count(3, "dp"), "SW905", "mask is a tensor, got 3"),
        (lambda x: token_mean([x], "dp"), "SW905", "losses is a tensor"),
        (lambda x: token_mean(x, "dp", count="8"), "SW905", "count is a number or a tensor, got '8'"),
        (lambda x: token_mean(x, "ep"), "SW902", "ep"),
        (lambda x: auxiliary(x.sum(), "dp", src=P), "SW905", "src of auxiliary is R"),
        (lambda x: auxiliary(x.sum(), src=R), "SW905", "auxiliary needs the mesh axes"),
    ],
)
def test_bad_arguments_are_refused(call: Any, code: str, said: str) -> None:
    def rank() -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
        with spmd.set_current_mesh(mesh), pytest.raises(SpmdTypeError, match=said) as caught:
            call(torch.ones(2))
        assert caught.value.code == code

    InProcessWorld(4).run(rank)


@pytest.mark.parametrize(
    ("types", "call", "expected"),
    [
        ({"dp": S(0), "cp": R}, lambda x: token_mean(x, "dp", count=x.sum()), "SW110"),
        ({"dp": S(0), "cp": R}, lambda x: auxiliary(x.sum(), "dp", src=R), "SW201"),
        ({"dp": I, "cp": I}, lambda x: auxiliary(x.sum(), "dp", "cp", src=R), "SW201"),
    ],
)
def test_wrong_types_are_found(types: dict[str, Any], call: Any, expected: str) -> None:
    def rank() -> list[str]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
        collector = Collector()
        with spmd.set_current_mesh(mesh), checking(collect=collector):
            call(spmd.assert_type(torch.rand(4).requires_grad_(), types))
        return [finding.code for finding in collector.result().findings]

    assert InProcessWorld(4).run(rank)[0][:1] == [expected]
