"""Models of Megatron: types of their parameters and inputs, as its marks and its groups say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise.checker.observation.coverage import counting
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.coverage import Coverage
from shardwise.diagnostics.result import Collector
from shardwise.host.module_calls import OuterModules, telling_calls
from shardwise.interop.running.recording import Recorder, heard_by
from shardwise.interop.torch_compat import fake_world
from shardwise.uniformity.expression_recorder import ExpressionRecorder
from shardwise.uniformity.expressions import EqualValue

from .helpers import place


class Wrapper(nn.Module):
    """What stands for Megatron's wrapper: with ``moves`` it puts all parameters into one buffer."""

    def __init__(self, module: nn.Module, moves: bool = False) -> None:
        super().__init__()
        self.module = module
        buffer = torch.zeros(sum(one.numel() for one in module.parameters()))
        at = 0
        for parameter in module.parameters() if moves else ():
            before, end = parameter.data, at + parameter.numel()
            parameter.data = buffer[at:end].view(parameter.shape)
            parameter.data.detach().copy_(before)
            at = end

        self.grads = torch.zeros(sum(one.numel() for one in module.parameters()))
        self.nodes = []
        at = 0
        for parameter in module.parameters():
            parameter.main_grad = self.grads[at : at + parameter.numel()].view(parameter.shape)
            at += parameter.numel()
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            node.register_hook(self._make_backward_post_hook(parameter))
            self.nodes.append(node)

    def _make_backward_post_hook(self, parameter: nn.Parameter) -> Any:
        def hook(*unused: object) -> None:
            parameter.main_grad.add_(parameter.grad.data)
            parameter.grad = None

        return hook

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class ShardedOptimizer:
    """What stands for Megatron's distributed optimizer: it steps with this rank's half of each parameter."""

    def __init__(self, module: nn.Module, group: dist.ProcessGroup) -> None:
        self.data_parallel_group = group
        halves = [one.detach().view(-1)[: one.numel() // 2] for one in module.parameters()]
        self.optimizer = torch.optim.SGD(halves, lr=0.1)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A mesh dp=2, tp=4, whose groups a stand-in of Megatron's parallel state has."""
    with fake_world(0, 8):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        alone = dist.new_group([0])
        state = ModuleType("megatron.core.parallel_state")
        for name, group in {
            "tensor_model_parallel": mesh.get_group("tp"),
            "data_parallel": mesh.get_group("dp"),
            "context_parallel": alone,
            "pipeline_model_parallel": alone,
            "expert_tensor_parallel": mesh.get_group("tp"),
            "expert_model_parallel": mesh.get_group("dp"),
            "expert_data_parallel": alone,
        }.items():
            setattr(state, f"get_{name}_group", lambda group=group: group)
        state.model_parallel_is_initialized = lambda: True
        wrappers = ModuleType("megatron.core.distributed.distributed_data_parallel")
        wrappers.DistributedDataParallel = type("DistributedDataParallel", (Wrapper,), dict(vars(Wrapper)))
        optimizers = ModuleType("megatron.core.optimizer.distrib_optimizer")
        optimizers.DistributedOptimizer = type("DistributedOptimizer", (), dict(vars(ShardedOptimizer)))
        for module in (state, wrappers, optimizers):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        with spmd.set_current_mesh(mesh):
            yield wrappers.DistributedDataParallel


class Model(nn.Module):
    """A column-parallel weight, a norm and an expert, marked as Megatron marks them."""

    def __init__(self, *, sequence_parallel: bool = False) -> None:
        super().__init__()
        self.column = nn.Parameter(torch.ones(8, 16))
        self.norm = nn.Parameter(torch.ones(16))
        self.q_layernorm = nn.Parameter(torch.ones(4))
        self.expert = nn.Parameter(torch.ones(3, 16))
        marked: dict[str, dict[str, Any]] = {
            "column": {"tensor_model_parallel": True, "partition_dim": 0, "partition_stride": 1, "allreduce": True},
            "norm": {"sequence_parallel": sequence_parallel},
            "expert": {"allreduce": False},
        }
        for name, marks in marked.items():
            for mark, value in marks.items():
                setattr(getattr(self, name), mark, value)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x * mask, (16,), self.norm)


def places(x: Any) -> str:
    return place(x, "dp") + place(x, "tp")


@pytest.mark.parametrize("moves", [False, True], ids=["apart", "in one buffer"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_marks_say_what_parameters_are(groups, sequence_parallel, moves):
    with checking(strict=False, local=True, collect=Collector(), observe=True):
        model = groups(Model(sequence_parallel=sequence_parallel), moves).module
        assert places(model.column) == "RV"
        assert places(model.norm) == ("RR" if sequence_parallel else "RI")
        assert places(model.q_layernorm) == "RR", "of heads, which are cut"
        assert places(model.expert) == "VI", "each data parallel rank has experts of its own"


def test_globally_nothing_is_typed(groups):
    with checking(strict=False, local=False, collect=Collector(), observe=True):
        assert not spmd.has_local_type(groups(Model()).module.column)


def test_where_the_numbers_of_ranks_are_compared_nothing_is_typed(groups):
    with checking(strict=False, local=True, collect=Collector(), observe=True), heard_by(Recorder()):
        assert not spmd.has_local_type(groups(Model()).module.column)


def test_what_marks_say_is_equal_need_not_be_computed_alike(groups):
    told: list[EqualValue] = []
    recorder = ExpressionRecorder(told.append, lambda: False)
    with checking(strict=False, local=True, collect=Collector(), observe=True), recorder.recording():
        model = groups(Model())
        ids = torch.randn(5, 16)
        model(ids, torch.randn(16))
        assert places(ids - 16) == "VI", "on another rank it is another number"
        tensor_parallel = dist.get_process_group_ranks(group_of("tensor_model"))
        assert [one.op for one in told] == ["taken by a model of Megatron"] * 2, "of the inputs that is so"
        assert [list(ranks) for one in told for _, ranks in one.groups] == [tensor_parallel] * 2
        told.clear()
        said = spmd.assert_type(torch.ones(2), {"dp": spmd.R})
        (declared,) = told
        assert declared.op == "declared by assert_type"
        assert places(said * 2).startswith("R")
        assert len(told) == 1, "here the marks' word is as good"


def test_inputs_of_models_are_each_ranks_own_by_assumption_alone(groups):
    coverage: list[Coverage] = []
    observing = checking(strict=False, local=True, collect=Collector(), observe=True)
    with observing as session, counting(coverage.append, session):
        groups(Model())(torch.randn(5, 16), torch.ones(16))
    (data,) = coverage[0].own_data
    assert data.what.startswith("0 of"), "the mask is no data, but a constant"
    assert coverage[0].is_data_assumed


def test_what_somebody_has_typed_stays(groups):
    with checking(strict=False, local=True, collect=Collector(), observe=True):
        model = Model()
        spmd.assert_type(model.norm, {"dp": spmd.R, "tp": spmd.R})
        assert places(groups(model).module.norm) == "RR"


def test_inputs_are_equal_on_tensor_parallel_ranks(groups):
    with checking(strict=False, local=True, collect=Collector(), observe=True):
        model = Model()
        assert places(model(torch.randn(5, 16), mask=torch.randn(16))) == "VI"


@pytest.mark.parametrize(
    ("said", "expected"),
    [({"dp": spmd.V}, "VI"), ({"dp": spmd.R}, "RI"), ({"dp": spmd.V, "tp": spmd.V}, "VV"), ({"tp": spmd.R}, "R")],
    ids=str,
)
def test_what_is_said_of_an_input_along_other_axes_leaves_it_equal_on_tensor_parallel_ranks(groups, said, expected):
    with checking(strict=False, local=True, collect=Collector(), observe=True):
        x = spmd.assert_type(torch.randn(5, 16), said)
        Model()(x, torch.ones(16))
        assert places(x) == expected


def test_data_that_is_dealt_out_by_hand_is_equal_on_tensor_parallel_ranks(groups):
    with checking(strict=False, local=True, collect=Collector(), observe=True):
        model = groups(Model())
        group = sys.modules["megatron.core.parallel_state"].get_data_parallel_group()
        x = torch.randn(6, 16).chunk(dist.get_world_size(group))[dist.get_rank(group)]
        assert places(x) == "V", "the cut says so"
        assert places(model(x, torch.ones(16))) == "VI"


def test_what_a_part_of_a_model_gets_is_not_assumed(groups):
    with checking(strict=False, local=True, collect=Collector(), observe=True):
        whole = nn.ModuleList([nn.Identity()])
        whole.forward = lambda x: whole[0](torch.randn(2))
        assert not spmd.has_local_type(whole(torch.randn(2)))


def test_nor_what_another_part_has_made(groups):
    with checking(strict=False, local=True, collect=Collector(), observe=True):
        made = torch.randn(5, 16, requires_grad=True)
        data = made.detach()
        Model()(made, torch.ones(16))
        with torch.no_grad():
            Model()(data, torch.ones(16))
        assert not spmd.has_local_type(made)
        assert not spmd.has_local_type(data)
        Model()(data, torch.ones(16))
        assert spmd.has_local_type(data)


def test_nor_what_a_function_in_the_form_of_a_module_gets(groups):
    with checking(strict=False, local=True, collect=Collector(), observe=True):
        assert not spmd.has_local_type(nn.Softmax(-1)(torch.randn(2)))


def test_dropout_of_what_is_equal_on_tensor_parallel_ranks_draws_alike(groups):
    found = Collector()
    with checking(strict=False, local=True, collect=found, observe=True):
        made = nn.functional.dropout(groups(Model())(torch.randn(5, 16), torch.randn(16)), 0.5)
        assert places(made) == "VI"
    assert not found.result().findings


def test_without_observing_nothing_is_typed(groups):
    with checking(strict=False, local=True, collect=Collector()):
        assert not spmd.has_local_type(groups(Model()).module.norm)


def test_a_norm_of_pieces_of_the_sequence_needs_its_mark(groups):
    found = Collector()
    with checking(strict=False, local=True, collect=found, observe=True):
        groups(Model())(spmd.assert_type(torch.randn(5, 16), {"dp": spmd.V, "tp": spmd.V}), torch.ones(16))
    (finding,) = found.result().findings
    assert finding.code == "SW101"


@pytest.mark.parametrize("summed", [("dp", "tp"), ("dp",), ("tp",)], ids=str)
def test_gradients_in_the_buffer_of_all_must_be_summed(groups, summed):
    found = Collector()
    with checking(strict=False, local=True, collect=found, observe=True):
        wrapper = groups(Norm())
        optimizer = torch.optim.SGD(wrapper.parameters(), lr=0.1)
        wrapper(spmd.assert_type(torch.randn(5, 16), {"dp": spmd.V, "tp": spmd.V})).sum().backward()
        for axis in summed:
            dist.all_reduce(wrapper.grads, group=group_of("data" if axis == "dp" else "tensor_model"))
        for parameter in wrapper.parameters():
            parameter.grad = parameter.main_grad
        optimizer.step()
    findings = found.result().findings
    assert [finding.code for finding in findings] == ["SW608"] * (2 - len(summed))


@pytest.mark.parametrize("shared", [False, True])
def test_of_gradients_between_stages_those_of_the_shared_embedding_alone_are_open(groups, monkeypatch, shared):
    """A stage has parameters of its own, and no other one has an addend of their gradients."""
    state, stages = sys.modules["megatron.core.parallel_state"], group_of("tensor_model")
    monkeypatch.setattr(state, "get_pipeline_model_parallel_group", lambda: stages)
    for kind in ("tensor_model", "expert_tensor"):
        monkeypatch.setattr(state, f"get_{kind}_parallel_group", state.get_context_parallel_group)
    coverage: list[Coverage] = []
    observing = checking(strict=False, local=True, collect=Collector(), observe=True)
    with observing as session, counting(coverage.append, session):
        inner = Norm()
        inner.weight.shared_embedding = shared
        wrapper = groups(inner)
        optimizer = torch.optim.SGD(wrapper.parameters(), lr=0.1)
        wrapper(torch.randn(5, 16)).sum().backward()
        dist.all_reduce(wrapper.grads, group=group_of("data"))
        dist.all_reduce(wrapper.grads.norm(), group=stages)
        for parameter in wrapper.parameters():
            parameter.grad = parameter.main_grad
        optimizer.step()
    over_stages = [(one.unknown, one.taken) for one in coverage[0].unjudged_gradients if "tp" in one.axis]
    assert over_stages == ([(1, 1)] if shared else [])


class Norm(nn.Module):
    """A norm of pieces of the sequence, whose gradients the step sums over both axes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))
        self.weight.sequence_parallel = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, (16,), self.weight)


def test_what_the_distributed_optimizer_steps_with_is_this_ranks_part(groups):
    with checking(strict=False, local=True, collect=Collector(), observe=True):
        model = groups(Model(), moves=True).module
        made = sys.modules["megatron.core.optimizer.distrib_optimizer"].DistributedOptimizer
        optimizer = made(model, group_of("data"))
        assert [places(one) for one in optimizer.optimizer.param_groups[0]["params"]] == ["VV", "VI", "VR", "VI"]
        assert places(model.norm) == "RI", "whoever has the whole gets it back"


def group_of(ranks: str) -> Any:
    """The group of these parallel ranks, as Megatron tells it."""
    return getattr(sys.modules["megatron.core.parallel_state"], f"get_{ranks}_parallel_group")()


def test_listeners_to_calls_come_and_go_in_any_order():
    plain, told = nn.Module.__call__, []
    first, second = (telling_calls(lambda module, args, at=at: told.append(at)) for at in (1, 2))
    first.__enter__()
    second.__enter__()
    nn.Identity()(0)
    first.__exit__(None, None, None)
    nn.Identity()(0)
    second.__exit__(None, None, None)
    nn.Identity()(0)
    assert told == [2, 1, 2]
    assert nn.Module.__call__ is plain


def test_a_part_of_a_module_that_was_called_is_no_outer_one():
    outer, whole = OuterModules(), nn.Sequential(nn.Identity())
    assert outer.is_new(whole)
    assert not outer.is_new(whole)
    assert whole in outer
    assert not outer.is_new(whole[0])
    assert whole[0] not in outer
