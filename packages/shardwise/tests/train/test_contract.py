"""Does the contract know who owes which sum, make those of the step, and tell missing and doubled ones?"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker import typecheck
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.running import session
from shardwise.train import TrainingContract, clip_grad_norm_, grad_norm
from shardwise.worlds.world import InProcessWorld, ProcessWorld


def on_mesh(body: Callable[[Any], Any], sizes: tuple[int, ...] = (2, 2), names: tuple[str, ...] = ("dp", "tp")) -> Any:
    """What ``body(mesh)`` gives on every rank, on a mesh that is current."""

    def rank() -> Any:
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
        with spmd.set_current_mesh(mesh):
            return body(mesh)

    return InProcessWorld(math.prod(sizes)).run(rank)


def refused(code: str, words: str, body: Callable[[Any], Any]) -> None:
    """``body(mesh)`` is refused with ``code`` and these words."""

    def rank(mesh: Any) -> None:
        with pytest.raises(SpmdTypeError, match=words) as caught:
            body(mesh)
        assert caught.value.code == code

    on_mesh(rank)


class Block(nn.Module):
    """A norm weight that is used on each rank's tokens, and rows that are split."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.rows = nn.Parameter(torch.ones(3, 2))
        spmd.assert_type(self.norm, {"dp": R, "tp": R})
        spmd.assert_type(self.rows, {"dp": R, "tp": S(0)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.norm) @ self.rows.T


def backward(model: nn.Module, scale: float = 1.0) -> None:
    """The loss is P over dp, and over tp too, because every rank has its own rows."""
    x = spmd.assert_type(torch.full((1, 2), scale), {"dp": S(0), "tp": R})
    loss = spmd.all_reduce(model(x).sum(), "tp", src=V, dst=I)
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()


OWED = {"norm": {"dp": "step", "tp": "step"}, "rows": {"dp": "step"}}


@pytest.mark.parametrize("check", [True, False], ids=["checked", "plain"])
@pytest.mark.parametrize("bucket_bytes", [1, 2**20])
def test_finalize_makes_the_sums_of_the_step_and_no_other(check: bool, bucket_bytes: int) -> None:
    def body(mesh: Any) -> list[torch.Tensor]:
        model = Block()
        contract = TrainingContract(model, OWED)
        scale = 1.0 + mesh.get_local_rank("dp")
        if check:
            with typecheck():
                backward(model, scale)
                contract.finalize(bucket_bytes=bucket_bytes)
                assert spmd.get_local_type(model.norm.grad) == {spmd.normalize_axis(n): R for n in ("dp", "tp")}
                assert spmd.get_axis_local_type(model.rows.grad, "tp") is V
                torch.optim.SGD(model.parameters(), 0.0).step()
        else:
            backward(model, scale)
            contract.finalize(bucket_bytes=bucket_bytes)
        return [model.norm.grad, model.rows.grad]

    for norm, rows in on_mesh(body):
        assert torch.equal(norm, torch.full((2,), 3.0 * (1 + 2) * 2))  # three rows on each of two ranks
        assert torch.equal(rows, torch.tensor([[3.0, 6.0]] * 3))


def test_the_table_says_who_owes_what() -> None:
    def body(mesh: Any) -> str:
        model = Block()
        model.bias = nn.Parameter(torch.zeros(1), requires_grad=False)
        model.router = spmd.assert_type(nn.Parameter(torch.zeros(1)), {"dp": R, "tp": I})
        spmd.assert_type(model.bias, {"dp": R, "tp": R})
        return str(TrainingContract(model, {"*": {"dp": "step"}, "norm": {"tp": "module"}}))

    expected = """\
parameter      dp       tp
norm           R: step  R: module
rows           R: step  V
bias (frozen)  R        R
router         R: step  I"""
    assert on_mesh(body) == [expected] * 4


@pytest.mark.processes
def test_what_wrappers_and_hooks_sum_is_seen() -> None:
    def body(mesh: Any) -> None:
        model = Block()
        model.norm.register_hook(lambda gradient: gradient)
        plain = {line.name: dict(line.owners) for line in TrainingContract(model).lines}
        dp, tp = spmd.normalize_axis("dp"), spmd.normalize_axis("tp")
        assert plain == {"norm": {dp: "module", tp: "module"}, "rows": {dp: "program"}}
        ddp = DistributedDataParallel(model, process_group=mesh.get_group("dp"))
        for contract in (TrainingContract(ddp), TrainingContract(model, wrappers=[ddp])):
            owners = {line.name: dict(line.owners) for line in contract.lines}
            assert owners == {"norm": {dp: "wrapper", tp: "module"}, "rows": {dp: "wrapper"}}

    on_processes(body)


def on_processes(body: Callable[[Any], Any]) -> list[Any]:
    def rank() -> Any:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        with spmd.set_current_mesh(mesh):
            return body(mesh)

    return ProcessWorld(4).run(rank)


@pytest.mark.processes
def test_types_from_before_fully_shard_are_kept() -> None:
    def body(mesh: Any) -> float:
        from torch.distributed.fsdp import fully_shard

        model = Block()
        contract = TrainingContract(model, {"norm": {"tp": "step"}})
        fully_shard(model, mesh=mesh["dp"])
        backward(model, 1.0 + mesh.get_local_rank("dp"))
        contract.finalize()
        table = str(contract)
        assert table.splitlines()[1:] == ["norm       V   R: step", "rows       V   V"]
        return grad_norm(model.parameters(), contract=contract).item()

    whole = torch.cat([torch.full((2,), 9.0), torch.tensor([[1.5, 3.0]] * 6).flatten()])  # fully_shard averages over dp
    assert on_processes(body) == [pytest.approx(whole.norm().item())] * 4


def test_an_erased_program_says_the_types_in_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "erased", True)

    def body(mesh: Any) -> float:
        model = Block()
        types = {"*": {"dp": R, "tp": R}, "rows": {"tp": S(0)}}
        contract = TrainingContract(model, OWED, types=types)
        backward(model)
        contract.finalize()
        return grad_norm(model.parameters(), contract=contract).item()

    whole = torch.cat([torch.full((2,), 12.0), torch.tensor([[2.0, 4.0]] * 6).flatten()])
    assert on_mesh(body) == [pytest.approx(whole.norm().item())] * 4


@pytest.mark.parametrize("present", [(), (3,)])
def test_a_gradient_that_some_ranks_lack_counts_as_zeros_and_one_that_all_lack_stays_away(present: Any) -> None:
    def body(mesh: Any) -> Any:
        model = Block()
        if dist.get_rank() in present:
            model.norm.grad = torch.ones(2)
        model.rows.grad = torch.ones(3, 2)
        TrainingContract(model, OWED).finalize()
        return model.norm.grad

    for gradient in on_mesh(body):
        assert gradient is None if not present else torch.equal(gradient, torch.ones(2))


def test_a_tied_parameter_is_one_line_and_is_summed_once() -> None:
    def body(mesh: Any) -> torch.Tensor:
        model = nn.ModuleDict({"embedding": nn.Linear(2, 2, bias=False), "head": nn.Linear(2, 2, bias=False)})
        model["head"].weight = model["embedding"].weight
        spmd.assert_type(model["head"].weight, {"dp": R, "tp": I})
        contract = TrainingContract(model, {"*": {"dp": "step"}})
        assert [line.names for line in contract.lines] == [("embedding.weight", "head.weight")]
        model["head"].weight.grad = torch.ones(2, 2)
        contract.finalize()
        with pytest.raises(SpmdTypeError, match=r"embedding\.weight and head\.weight are one tied parameter") as caught:
            _ = TrainingContract(model, {"head.*": {"dp": "step"}}).lines
        assert caught.value.code == "SW905"
        return model["head"].weight.grad

    assert all(torch.equal(gradient, torch.full((2, 2), 2.0)) for gradient in on_mesh(body))


def test_router_and_experts() -> None:
    def body(mesh: Any) -> list[torch.Tensor]:
        model = nn.ParameterDict({"router": torch.ones(2), "experts": torch.ones(2)})
        spmd.assert_type(model["router"], {"dp": R, "ep": R})
        spmd.assert_type(model["experts"], {"dp": R, "ep": S(0)})
        contract = TrainingContract(model, {"*": {"dp": "step"}, "router": {"ep": "step"}})
        for parameter in model.values():
            parameter.grad = torch.full((2,), 1.0 + dist.get_rank())
        contract.finalize()
        assert grad_norm(model.values(), 1.0, contract=contract).item() == 20 + (2 * 4 + 2 * 6)
        return [model["router"].grad, model["experts"].grad]

    for rank, (router, experts) in enumerate(on_mesh(body, names=("dp", "ep"))):
        assert torch.equal(router, torch.full((2,), 10.0))
        assert torch.equal(experts, torch.full((2,), [4.0, 6.0][rank % 2]))


def test_experts_on_a_mesh_of_their_own() -> None:
    def body(mesh: Any) -> float:
        experts = init_device_mesh("cpu", (2, 4), mesh_dim_names=("edp", "ep"))
        model = nn.ParameterDict({"dense": torch.ones(3), "experts": torch.ones(2)})
        spmd.assert_type(model["dense"], {"dp": R, "tp": I})
        with spmd.set_current_mesh(experts):
            spmd.assert_type(model["experts"], {"edp": R, "ep": S(0)})
        owed = {"dense": {"dp": "step"}, "experts": {"edp": "step"}}
        contract = TrainingContract(model, owed, meshes=[experts])
        assert str(contract).splitlines()[0].split() == ["parameter", "edp", "dp", "ep", "tp"]
        for parameter in model.values():
            parameter.grad = torch.ones_like(parameter)
        contract.finalize()
        return grad_norm(model.values(), 1.0, contract=contract).item()

    assert on_mesh(body, (4, 2)) == [3 * 4 + 2 * 4 * 2] * 8


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_wrapped_models_step_alike_with_and_without_a_check(kind: str) -> None:
    def step(mesh: Any, check: bool) -> float:
        from torch.distributed.fsdp import fully_shard

        model: nn.Module = Block()
        owed = {"norm": {"tp": "step"}}
        contract = TrainingContract(model, owed)
        if kind == "ddp":
            model = DistributedDataParallel(model, process_group=mesh.get_group("dp"))
            contract = TrainingContract(model, owed)
        with typecheck() if check else nullcontext():
            if kind == "fsdp":
                fully_shard(model, mesh=mesh["dp"])
            backward(model)
            contract.finalize()
            norm = clip_grad_norm_(model.parameters(), 1.0, contract=contract)
            torch.optim.SGD(model.parameters(), 0.1).step()
        return norm.item()

    def body(mesh: Any) -> None:
        expected = torch.cat([torch.full((2,), 6.0), torch.tensor([[1.0, 2.0]] * 6).flatten()]).norm().item()
        assert [step(mesh, True), step(mesh, False)] == [pytest.approx(expected)] * 2

    on_processes(body)


@pytest.mark.parametrize(
    ("owed", "words"),
    [
        ({}, "the gradients of norm, rows are not summed over dp, which the program owes before finalize"),
        ({"*": {"dp": "wrapper"}}, "are not summed over dp, which a wrapper owes"),
        (
            {"*": {"dp": "step"}, "norm": {"tp": "module"}},
            "gradient of norm is not summed over tp, which the module owes",
        ),
    ],
)
def test_a_missing_sum_is_told_with_who_owes_it(owed: Any, words: str) -> None:
    def body(mesh: Any) -> None:
        model = Block()
        contract = TrainingContract(model, owed)
        with typecheck():
            backward(model)
            contract.finalize()

    refused("SW611", words, body)


def test_a_sum_that_was_made_before_is_not_made_again() -> None:
    def body(mesh: Any) -> None:
        model = Block()
        contract = TrainingContract(model, OWED)
        with typecheck():
            backward(model)
            dist.all_reduce(model.rows.grad, group=mesh.get_group("dp"))
            contract.finalize()

    refused("SW612", "finalize sums the gradient of rows over dp, over which it has been summed", body)


def test_finalize_twice_is_a_sum_too_many() -> None:
    def body(mesh: Any) -> None:
        model = Block()
        contract = TrainingContract(model, OWED)
        with typecheck():
            backward(model)
            contract.finalize()
            contract.finalize()

    refused("SW612", "over which they have been summed", body)


@pytest.mark.parametrize(
    ("owed", "words"),
    [
        (
            {"rows": {"tp": "step"}},
            "the step sums the gradient of rows over tp, of which each rank holds another piece",
        ),
        ({"scale": {"tp": "step"}}, "the step sums the gradient of scale over tp, which is invariant there"),
    ],
)
def test_a_sum_that_is_not_pending_is_refused_without_a_check(owed: Any, words: str) -> None:
    def body(mesh: Any) -> None:
        model = Block()
        model.scale = spmd.assert_type(nn.Parameter(torch.ones(1)), {"dp": R, "tp": I})
        TrainingContract(model, owed).finalize()

    refused("SW612", words, body)


@pytest.mark.processes
@pytest.mark.parametrize(("group", "owed"), [("dp", {"*": {"dp": "step"}}), ("tp", None)])
def test_a_wrapper_that_sums_what_it_should_not_is_refused(group: str, owed: Any) -> None:
    words = {
        "dp": "the gradient of norm is summed over dp twice: by DistributedDataParallel, and by the step",
        "tp": "DistributedDataParallel sums the gradient of rows over tp, of which each rank holds another piece",
    }

    def body(mesh: Any) -> None:
        ddp = DistributedDataParallel(Block(), process_group=mesh.get_group(group))
        with pytest.raises(SpmdTypeError, match=words[group]) as caught:
            TrainingContract(ddp, owed).finalize()
        assert caught.value.code == "SW612"

    on_processes(body)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"owed": {"nrom": {"dp": "step"}}}, "'nrom' of owed matches no parameter; there are norm, rows"),
        ({"types": {"x.*": {"dp": R}}}, "'x.*' of types matches no parameter"),
        ({"owed": {"norm": {"dp": "me"}}}, "owed lets 'me' sum the gradient of norm over dp; it is one of 'wrapper'"),
        ({"owed": {"norm": "step"}}, "owed maps patterns of names to dicts"),
        ({"types": {"norm": {"dp": P}}}, "types says of norm along dp R, I, V or S"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: Any, words: str) -> None:
    refused("SW905", words, lambda mesh: TrainingContract(Block(), **arguments).finalize())


def test_what_nobody_declared_and_what_is_no_module_is_refused() -> None:
    refused(
        "SW613", "nothing is declared of weight, bias along dp", lambda mesh: str(TrainingContract(nn.Linear(2, 2)))
    )
    refused("SW905", "a contract is made of a module", lambda mesh: TrainingContract([nn.Linear(2, 2)]))
