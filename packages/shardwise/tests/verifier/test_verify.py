"""Is a wrong program caught by running it, and a right one passed? On real processes, two or four of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import dropout

from shardwise import (
    I,
    P,
    R,
    S,
    V,
    all_gather,
    all_reduce,
    assert_type,
    checkpoint_value,
    convert,
    linear,
    local_map,
    reinterpret,
    verify,
)
from shardwise.checker import mode
from shardwise.checker.patching import patches
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError
from shardwise.diagnostics.result import ExitCode
from shardwise.interop.running.recording import Key
from shardwise.op_rules import registry as table
from shardwise.op_rules.schema import OpRule
from shardwise.rules import register_rule
from shardwise.verifier.distance.numbers import Against, NotCompared, Numbers, Parting
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Function
from shardwise.verifier.run import verify_subject
from shardwise.verifier.text import Verdict

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("verify")]

DP, TP = {"dp": 2}, {"tp": 2}


def numbered(*shape: int) -> torch.Tensor:
    """The same numbers in every run, no two alike."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64).view(shape) * 0.7).sin()


def piece(x: torch.Tensor, mesh: Any, axis: str, dim: int = 0) -> torch.Tensor:
    return x.chunk(mesh.size(), dim)[mesh.get_local_rank(axis)].contiguous()


def regression(mesh: Any, *, reduce: bool = True, scale: float = 1.0, inputs: Any = None) -> torch.Tensor:
    """Least squares in data parallel, with a step of gradient descent."""
    model = nn.Linear(4, 1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(numbered(*parameter.shape))
    for parameter in model.parameters():
        assert_type(parameter, {"dp": R})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = assert_type(piece(numbered(8, 4) if inputs is None else inputs, mesh, "dp"), {"dp": S(0)})
    losses = (model(x) ** 2).sum() / 8
    loss = reinterpret(losses, "dp", src=V, dst=P) * scale
    loss.backward()
    if reduce:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
    optimizer.step()
    return loss


def two_layers(mesh: Any, *, forget: bool = False) -> torch.Tensor:
    """Columns, then rows, with the sum over tp between the second product and the loss."""
    up = nn.Parameter(piece(numbered(8, 4), mesh, "tp"))
    down = nn.Parameter(piece(numbered(4, 8), mesh, "tp", 1))
    assert_type(up, {"tp": S(0)})
    assert_type(down, {"tp": S(1)})
    optimizer = torch.optim.SGD([up, down], lr=0.1)
    x = assert_type(numbered(3, 4), {"tp": I})
    h = torch.relu(convert(x, "tp", src=I, dst=R) @ up.T)
    pending = checkpoint_value("pending", reinterpret(h @ down.T, "tp", src=V, dst=P))
    if forget:
        y = reinterpret(reinterpret(pending, "tp", src=P, dst=V, expert_mode=True), "tp", src=V, dst=P)
        y = assert_type(y.detach().clone().requires_grad_(), {"tp": I}) if mesh.size() == 1 else local_claim(y)
    else:
        y = all_reduce(pending, "tp", src=P, dst=I)
    loss = checkpoint_value("y", y).square().sum()
    loss.backward()
    optimizer.step()
    return loss


@local_map(in_types=None, out_types={"tp": I})
def local_claim(y: torch.Tensor) -> torch.Tensor:
    return y * 1.0


def searching(mesh: Any) -> torch.Tensor:
    """Fails on a rank that has itself searched the thousands of modules for what checks replace."""
    assert len(patches._calm) < 100
    return regression(mesh)


def assert_clean(verdict: Verdict) -> None:
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert verdict.ok


def test_ranks_know_where_what_checks_replace_is_when_they_start():
    assert_clean(verify(searching, DP))


def test_a_right_data_parallel_program_is_right_in_both_verdicts():
    verdict = verify(regression, DP)
    assert_clean(verdict)
    # Two parameters declared, before and after, two gradients; the input, the loss, and the loss as the output.
    assert verdict.numbers.equal == 2 + 2 + 2 + 2 + 1 + 1 + 1
    assert verdict.numbers.not_compared == ()


def test_a_right_tensor_parallel_program_is_right_in_both_verdicts():
    verdict = verify(two_layers, TP)
    assert_clean(verdict)
    assert verdict.numbers.not_compared == ()
    assert verdict.numbers.equal == 3 + 2 + 2 + 2 + 2 + 1 + 1


def test_a_gradient_whose_sum_was_forgotten_is_not_equal_on_the_ranks():
    verdict = verify(lambda mesh: regression(mesh, reduce=False), DP, narrow=False)
    first = verdict.numbers.disagreements[0]
    assert (str(first.key), first.against, first.rank) == ("gradient of weight", Against.RANKS, 1)
    assert verdict.exit_code is ExitCode.FINDINGS


def test_a_factor_that_no_type_sees_is_seen_in_the_numbers():
    verdict = verify(lambda mesh: regression(mesh, scale=1 / mesh.size()), DP)
    assert verdict.types.errors == ()
    origin = verdict.numbers.origin
    assert origin is not None
    assert str(origin.key) == "result of mul"
    assert "1/2 of it" in verdict.numbers.disagreements[0].hint


def wrong_rows(mesh: Any) -> torch.Tensor:
    """Every rank takes the first rows, and says they are its share."""
    rows = numbered(8, 4).chunk(mesh.size())[0].contiguous()
    return all_gather(assert_type(rows, {"dp": S(0)}), "dp", src=S(0), dst=R)


def test_a_wrong_assert_type_that_the_types_accept_is_caught():
    verdict = verify(wrong_rows, DP)
    assert verdict.types.errors == ()
    first = verdict.numbers.disagreements[0]
    assert (first.key.kind, first.rank, first.index, first.whole_index) == ("declared", 1, (0, 0), (4, 0))
    text = str(verdict)
    assert text.splitlines()[0] == "wrong numbers: rows, as assert_type has it, differs from the run on one rank"
    assert "claim: f64[4@dp, 4]" in text
    assert text.splitlines()[-2].startswith("types:   clean")
    assert text.splitlines()[-1].startswith("numbers: 2 disagreements")


torch.library.define("verifytest::squares", "(Tensor x) -> Tensor")


@torch.library.impl("verifytest::squares", "CPU")
def _squares(x: torch.Tensor) -> torch.Tensor:
    return x * x


def wrong_rule(mesh: Any) -> torch.Tensor:
    register_rule("verifytest.squares", "x", linear="x")
    x = convert(assert_type(numbered(4), {"tp": R}), "tp", src=R, dst=P) + 1.0 * assert_type(
        numbered(4) / mesh.size(), {"tp": P}
    )
    return all_reduce(torch.ops.verifytest.squares(x), "tp", src=P, dst=R)


def test_a_wrong_rule_declared_by_hand_is_caught_where_it_is_used():
    verdict = verify(wrong_rule, TP)
    assert verdict.types.errors == ()
    first = verdict.numbers.disagreements[0]
    assert (first.key.kind, first.key.name) == ("declared", "result of verifytest.squares")
    assert first.ranks == (0, 1)


def test_an_unsound_op_rule_is_caught_at_the_operation(monkeypatch):
    """log1p is not linear: the sum of logarithms is not the logarithm of the sum."""
    unsound = OpRule("log1p", "input", "input", law="planted")
    monkeypatch.setitem(table._table(), "log1p", unsound)
    monkeypatch.delitem(mode._handlers, torch.log1p, raising=False)  # remembers the rule of earlier calls

    def program(mesh: Any) -> torch.Tensor:
        x = assert_type(numbered(4).abs() / mesh.size(), {"tp": P})
        return all_reduce(torch.log1p(x), "tp", src=P, dst=R)

    verdict = verify(program, TP)
    assert verdict.types.errors == ()
    assert verdict.numbers.origin is not None
    assert str(verdict.numbers.origin.key) == "result of log1p"
    assert verdict.numbers.origin.ranks == (0, 1)


@local_map(in_types=({"tp": S(0)},), out_types={"tp": R})
def own_maximum(x: torch.Tensor) -> torch.Tensor:
    return reinterpret(x.amax(), "tp", src=V, dst=P) if False else x.amax()


def test_a_wrong_boundary_is_caught_by_the_types_and_by_the_numbers():
    verdict = verify(lambda mesh: own_maximum(assert_type(piece(numbered(6), mesh, "tp"), {"tp": S(0)})), TP)
    assert [finding.code for finding in verdict.types.errors] == ["SW140"]
    first = verdict.numbers.disagreements[0]
    assert (first.key.kind, first.against) == ("declared", Against.RANKS)
    assert first.said == "is claimed to be R over tp, but rank 1 differs from rank 0"


def unsound_types_right_numbers(mesh: Any) -> torch.Tensor:
    x = convert(assert_type(numbered(4), {"tp": R}), "tp", src=R, dst=P, expert_mode=True)
    return torch.relu(x) if mesh.get_local_rank("tp") < 0 else checkpoint_value("x", x.abs())


def test_types_may_be_wrong_where_the_numbers_happen_to_be_right():
    """One rank holds the value and the others zeros, so a non-linear function with f(0) = 0 does no harm."""
    verdict = verify(unsound_types_right_numbers, TP)
    assert [finding.code for finding in verdict.types.errors] == ["SW112"]
    assert verdict.numbers.disagreements == ()
    assert verdict.exit_code is ExitCode.FINDINGS
    last = str(verdict).splitlines()[-2:]
    assert last[0].startswith("types:   1 error")
    assert last[1].startswith("numbers: clean")


def replicas_that_drift(mesh: Any) -> torch.Tensor:
    x = numbered(3)
    x[1] += torch.finfo(torch.float64).eps * dist.get_rank()
    return checkpoint_value("x", assert_type(x, {"dp": R}))


def test_replicas_that_differ_in_the_last_bit_are_told():
    verdict = verify(replicas_that_drift, DP)
    first = verdict.numbers.disagreements[0]
    assert (first.against, first.rank, first.index) == (Against.RANKS, 1, (1,))
    assert first.difference is not None
    assert first.difference.largest < 1e-15


def with_dropout(mesh: Any, *, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    x = assert_type(piece(numbered(8, 4), mesh, "dp"), {"dp": S(0)})
    h = dropout(x, 0.5)
    w = checkpoint_value("w", assert_type(numbered(4, 2), {"dp": R}))
    return reinterpret((h @ w).sum(), "dp", src=V, dst=P)


def test_random_numbers_that_differ_by_their_shape_part_the_runs():
    verdict = verify_subject(Function(with_dropout), DP, VerifyOptions(feed=False))
    assert verdict.numbers.disagreements == ()
    assert verdict.numbers.parting is not None
    assert verdict.numbers.parting.reason == "dropout draws [4, 4] random numbers here, [8, 4] there"
    assert verdict.numbers.replicas == 2  # w twice
    assert verdict.numbers.equal == 1
    assert "the two runs part" in str(verdict)


def drawn_alike(mesh: Any) -> torch.Tensor:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    whole = torch.randn(8) + torch.randn(8, generator=generator)
    return assert_type(piece(whole, mesh, "dp"), {"dp": S(0)})


def test_random_numbers_that_are_equal_in_both_runs_are_compared():
    verdict = verify(drawn_alike, DP)
    assert verdict.numbers.parting is None
    assert verdict.numbers.equal == 2


def local_sizes(mesh: Any, *, seeded: bool, claim: Any) -> torch.Tensor:
    """Every rank draws four rows, and one rank alone draws four rows too."""
    if seeded:
        torch.manual_seed(1)
    rows = assert_type(torch.stack([torch.randn(3) for _ in range(4)]), {"dp": claim})
    return all_reduce(reinterpret(rows.sum(0), "dp", src=V, dst=P), "dp", src=P, dst=R)


@pytest.mark.parametrize("claim", [S(0), V])
def test_a_program_of_local_sizes_with_unseeded_numbers_is_not_called_wrong(claim):
    verdict = verify(lambda mesh: local_sizes(mesh, seeded=False, claim=claim), DP)
    assert verdict.numbers.disagreements == ()
    assert verdict.numbers.parting is not None
    assert verdict.numbers.replicas == 1
    assert verdict.exit_code is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize("claim", [S(0), V])
def test_numbers_that_are_seeded_alike_are_no_shards(claim):
    verdict = verify(lambda mesh: local_sizes(mesh, seeded=True, claim=claim), DP, narrow=False)
    assert verdict.exit_code is ExitCode.FINDINGS
    assert verdict.numbers.parting is None
    assert verdict.numbers.disagreements[-1].hint == "2 times as much, the size of dp: summed once too often over dp?"


def gradients_without_an_optimizer(mesh: Any, *, twice: bool = False) -> None:
    model = nn.Linear(4, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(numbered(1, 4))
    assert_type(model.weight, {"dp": R})
    x = assert_type(piece(numbered(8, 4), mesh, "dp"), {"dp": S(0)})
    reinterpret(model(x).sum(), "dp", src=V, dst=P).backward()
    if twice:
        dist.all_reduce(model.weight.grad)
        dist.all_reduce(model.weight.grad)


def test_gradients_are_compared_when_there_is_no_optimizer():
    verdict = verify(gradients_without_an_optimizer, DP)
    assert_clean(verdict)
    assert verdict.numbers.equal == 4 + 1  # the weight's initial value
    wrong = verify(lambda mesh: gradients_without_an_optimizer(mesh, twice=True), DP, narrow=False)
    assert [str(one.key) for one in wrong.numbers.disagreements] == ["gradient of weight at the end"]


def test_data_parallel_by_ddp_needs_no_types():
    def train() -> None:
        torch.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)))
        optimizer = torch.optim.Adam(model.parameters())
        rank, size = dist.get_rank(), dist.get_world_size()
        model(numbered(8, 4).float().chunk(size)[rank]).mean().backward()
        optimizer.step()

    verdict = verify(train, DP, strict=False)
    assert verdict.numbers.equal == 3 * 4 + 1, "each parameter before, its gradient and after, and the loss"
    assert verdict.numbers.disagreements == ()


def with_a_bias_that_does_nothing(mesh: Any) -> None:
    """Softmax does not see what is added to all keys: the gradient of their bias is zero but for rounding."""
    torch.manual_seed(0)
    query, key = nn.Linear(8, 8, bias=False), nn.Linear(8, 8)
    parameters = [*query.parameters(), *key.parameters()]
    assert_type(parameters, {"dp": R})
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    x = assert_type(piece(numbered(8, 6, 8).float(), mesh, "dp"), {"dp": S(0)})
    for _ in range(2):
        optimizer.zero_grad()
        y = torch.softmax(query(x) @ key(x).mT, -1) @ x
        reinterpret(y.square().sum() / 8, "dp", src=V, dst=P).backward()
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
        optimizer.step()


def test_rounding_that_adam_magnifies_is_no_mistake():
    verdict = verify(with_a_bias_that_does_nothing, DP)
    assert_clean(verdict)
    assert verdict.numbers.replicas == 1  # the bias after the last step
    assert verdict.numbers.equal == 1 + 2 + 3 * (1 + 1 + 2) + 2


def norms(mesh: Any, *, together: bool) -> None:
    """A norm of what all ranks hold and of what each has of its own: as one number, or as two by two sums."""
    held, own = torch.ones(()), torch.full((), 2.0)
    everyone, alone = mesh.get_group("dp"), dist.new_group([dist.get_rank()], use_local_synchronization=True)
    sums = [(held, alone), (own, everyone)] if mesh.size() > 1 else [(held + 2 * own, everyone)]
    sums = [(torch.ones(()) / mesh.size(), everyone), *sums][-1 if together else 0 :]
    for total, group in sums:
        dist.all_reduce(total, group=group)
        total.item()


@pytest.mark.slow
def test_a_number_is_compared_where_both_runs_read_as_many():
    """One rank reads one norm of everything; the ranks two, of which one is a sum over all of them."""
    verdict = verify(lambda mesh: norms(mesh, together=False), DP, strict=False)
    assert verdict.numbers is not None
    assert verdict.numbers.disagreements == ()
    wrong = verify(lambda mesh: norms(mesh, together=True), DP, strict=False)
    assert wrong.numbers is not None
    assert [one.key.kind for one in wrong.numbers.disagreements] == ["read"]


def test_every_result_can_be_compared():
    few, many = (verify(two_layers, TP, every=every, local=False) for every in (False, True))
    assert_clean(many)
    assert many.numbers.equal > few.numbers.equal + 5


@pytest.mark.one_in(2)
@pytest.mark.parametrize("every", [False, True], ids=["losses", "every result"])
@pytest.mark.parametrize("sums", [False, True], ids=["averages", "only sums"])
def test_a_pending_average_is_compared_as_the_average(every, sums):
    def mean_loss(mesh: Any) -> None:
        model = nn.Linear(4, 1).double()
        with torch.no_grad():
            for parameter in model.parameters():
                assert_type(parameter.copy_(numbered(*parameter.shape)), {"dp": R})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = assert_type(piece(numbered(8, 4), mesh, "dp"), {"dp": S(0)})
        loss = checkpoint_value("loss", (model(x) ** 2).mean())
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
            parameter.grad /= 1 if sums else mesh.size()
        optimizer.step()

    verdict = verify(mean_loss, DP, local=False, every=every)
    if not sums:
        assert_clean(verdict)
        return
    assert [one.code for one in verdict.types.errors] == ["SW616"]
    assert [one.key.name for one in verdict.numbers.disagreements[:2]] == ["weight", "bias"], str(verdict)


def test_the_default_dtype_can_be_double():
    def dtype() -> torch.Tensor:
        return assert_type(torch.ones(2), {"dp": R})

    assert verify(dtype, DP, double=True).numbers.equal == 2
    claims = {double: verify(lambda: dtype() * int(dist.get_rank()), DP, double=double) for double in (False, True)}
    assert "f32[2]" in str(claims[False])
    assert "f64[2]" in str(claims[True])


def crashes(mesh: Any) -> None:
    if dist.get_rank() == 1:
        raise ValueError("no such batch")
    dist.barrier()


def test_a_rank_that_raises_is_named_with_its_place():
    verdict = verify(crashes, DP)
    assert verdict.exit_code is ExitCode.BROKEN
    assert verdict.failure is not None
    assert verdict.failure.where == "on the mesh"
    assert verdict.failure.text == "rank 1 of 2 raised ValueError: no such batch"
    assert verdict.failure.location is not None
    assert verdict.failure.location.function == "crashes"
    assert "ValueError: no such batch" in str(verdict)


@pytest.mark.slow
def test_ranks_that_wait_for_each_other_are_told():
    def hang() -> None:
        if dist.get_rank() == 1:
            dist.all_reduce(torch.ones(1))
        elif dist.get_world_size() == 2:
            torch.multiprocessing.get_context("fork").Event().wait()

    verdict = verify(hang, DP, timeout_s=3)
    assert verdict.failure is not None
    assert "did not finish in 3 s" in verdict.failure.text
    assert "all_reduce" in verdict.failure.details


def test_a_program_of_which_nothing_can_be_compared_has_no_verdict():
    verdict = verify(lambda: None, DP)
    assert verdict.exit_code is ExitCode.BROKEN
    assert "nothing was compared; say what tensors are with assert_type" in str(verdict)


KEY = Key("parameter", "weight", None, 1)
NOTHING_COMPARED = {
    "nothing to compare": (Numbers(), ExitCode.BROKEN, "numbers: nothing was compared"),
    "nothing that could be": (
        Numbers(not_compared=(NotCompared(KEY, "", "is no piece"),)),
        ExitCode.INCONCLUSIVE,
        "numbers: inconclusive; 0 tensors equal to the run on one rank, 1 not compared",
    ),
    "from the start other work": (
        Numbers(parting=Parting(KEY, "it draws by rank")),
        ExitCode.INCONCLUSIVE,
        "numbers: inconclusive; 0 tensors equal to the run on one rank, the runs part: it draws by rank",
    ),
}


@pytest.mark.parametrize(("numbers", "code", "said"), NOTHING_COMPARED.values(), ids=NOTHING_COMPARED)
def test_runs_that_came_to_their_end_and_could_not_be_compared_are_inconclusive(numbers, code, said):
    verdict = Verdict("program", "dp=2", numbers=numbers)
    assert verdict.exit_code is code
    assert said in str(verdict)


@pytest.mark.parametrize("mesh", [{}, {"dp": 0}, {"dp": True}, {"dp": "2"}])
def test_a_mesh_that_is_none_is_refused(mesh):
    with pytest.raises(SpmdValueError) as caught:
        verify(lambda: None, mesh)
    assert caught.value.code == "SW903"


def test_what_is_no_function_is_refused():
    with pytest.raises(SpmdArgumentError, match="verify takes a function, got one of type str") as caught:
        verify("train.py", DP)  # type: ignore[arg-type]
    assert caught.value.code == "SW905"


def test_a_linear_layer_with_a_declared_partial_result_is_right():
    def row_parallel(mesh: Any) -> torch.Tensor:
        w = assert_type(piece(numbered(4, 8), mesh, "tp", 1), {"tp": S(1)})
        x = assert_type(piece(numbered(3, 8), mesh, "tp", 1), {"tp": S(1)})
        return all_reduce(linear(x, w, out_partial_axes="tp"), "tp", src=P, dst=R)

    assert_clean(verify(row_parallel, TP, local=False, partials="explicit"))


def test_outside_of_verify_a_checkpoint_is_the_tensor_itself():
    x = torch.ones(2)
    assert checkpoint_value("x", x) is x


def unannotated(mesh: Any, *, copies: bool = True, scale: float = 1.0, own_data: bool = False) -> None:
    """A tensor-parallel block of hand-written region functions under data parallelism; nobody says any type."""
    tp, dp = mesh.get_group("tp"), mesh.get_group("dp")

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            if copies:
                grad = grad.clone()
                dist.all_reduce(grad, group=tp)
            return grad

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x = x.clone()
            dist.all_reduce(x, group=tp)
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.Linear(4, 4).double()
            with torch.no_grad():
                for parameter in self.norm.parameters():
                    parameter.copy_(numbered(*parameter.shape))
            self.up = nn.Parameter(piece(numbered(8, 4), mesh["tp"], "tp"))
            self.down = nn.Parameter(piece(numbered(4, 8), mesh["tp"], "tp", 1))

        def forward(self, x: Any) -> Any:
            return Reduce.apply((Copy.apply(self.norm(x)) @ self.up.T).relu() @ self.down.T)

    block = Block()
    optimizer = torch.optim.SGD(block.parameters(), lr=0.01)
    for step in range(2):
        x = numbered(8, 4) + step + (dist.get_rank() if own_data else 0)
        loss = block(piece(x, mesh["dp"], "dp")).square().mean() * scale
        optimizer.zero_grad()
        loss.backward()
        for parameter in block.parameters():
            dist.all_reduce(parameter.grad, group=dp)
            parameter.grad /= mesh["dp"].size()
        optimizer.step()


def test_a_right_program_without_a_type_is_compared_in_all_its_numbers():
    verdict = verify(unannotated, {"dp": 2, "tp": 2}, strict=False)
    assert verdict.numbers.disagreements == ()
    assert verdict.numbers.not_compared == ()
    assert verdict.numbers.parting is None
    assert verdict.numbers.equal == 4 * (1 + 2 + 1) + 2, "each parameter, two gradients, and after; two losses"


def test_a_sum_that_backward_forgets_is_named_by_the_parameters_before_it():
    verdict = verify(lambda mesh: unannotated(mesh, copies=False), {"dp": 2, "tp": 2}, strict=False, narrow=False)
    first = verdict.numbers.disagreements[0]
    assert (first.key.kind, first.key.name, first.against) == ("gradient", "norm.weight", Against.RANKS)
    assert first.said == "is not summed over tp: those of the ranks, added up, are that of one rank"


def test_a_loss_that_depends_on_the_mesh_is_named_with_its_factor():
    def train(mesh: Any) -> None:
        unannotated(mesh, scale=mesh["dp"].size())

    first = verify(train, {"dp": 2, "tp": 1}, strict=False, narrow=False).numbers.disagreements[0]
    assert first.key.kind == "loss"
    assert first.hint.startswith("2 times as much, the size of dp")


@pytest.mark.slow
def test_ranks_with_data_of_their_own_part_and_are_no_disagreement():
    verdict = verify(lambda mesh: unannotated(mesh, own_data=True), {"dp": 2, "tp": 1}, strict=False)
    assert verdict.numbers.disagreements == ()
    assert verdict.numbers.parting is not None
    assert "inputs" in verdict.numbers.parting.reason
    assert verdict.numbers.replicas > 0
