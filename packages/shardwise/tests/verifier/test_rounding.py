"""Is a right program in low precision clean however deep it is, and a bug of a few roundings found where it is?"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.distance.difference import Difference
from shardwise.verifier.distance.numbers import Against, Numbers, ValueDisagreement
from shardwise.verifier.distance.spread import rounding_to_measure, spread_of
from shardwise.verifier.layouts.places import nearest_place, taken
from shardwise.verifier.records.intervention import Intervention
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.record import RankRun
from shardwise.verifier.records.references import load
from shardwise.verifier.records.subject import Script
from shardwise.verifier.reference_runs import record_references
from shardwise.verifier.run import verify_subject
from shardwise.verifier.runs.perturbation import Perturbation
from shardwise.verifier.text import Verdict

LAYERS = 5
DEEP = 16
TENSOR_PARALLEL = """
    import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
    dist.init_process_group("gloo")
    n, r = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    D, LAYERS = 16, {layers}

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            g = g.clone()
            dist.all_reduce(g)
            return g

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x = x.clone()
            dist.all_reduce(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g

    class Block(nn.Module):
        def __init__(self, number):
            super().__init__()
            self.number = number
            self.norm = nn.LayerNorm(D)
            self.up = nn.Parameter((torch.randn(4 * D, D) / D**0.5).chunk(n, 0)[r].clone())
            self.down = nn.Parameter((torch.randn(D, 4 * D) / D**0.5).chunk(n, 1)[r].clone())

        def forward(self, x):
            y = Reduce.apply(F.gelu(Copy.apply(self.norm(x)) @ self.up.T) @ self.down.T)
            last = self.number == LAYERS - 1 and n > 1
            return {returned}

    layers = nn.Sequential(*(Block(number) for number in range(LAYERS)), nn.Linear(D, 4)).to(torch.{dtype})
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)
    for step in range(2):
        x, t = torch.randn(8, D).to(torch.{dtype}), torch.randint(0, 4, (8,))
        optimizer.zero_grad()
        F.cross_entropy(layers(x).float(), t).backward()
        optimizer.step()
"""


def subject_in(folder: Path, returned: str, dtype: str, layers: int = LAYERS) -> Script:
    script = folder / "script.py"
    text = TENSOR_PARALLEL.replace("{returned}", returned).replace("{layers}", str(layers))
    script.write_text(textwrap.dedent(text.replace("{dtype}", dtype)))
    return Script(Program(path=str(script)))


def verdict_on(folder: Path, returned: str, dtype: str = "bfloat16", layers: int = LAYERS) -> Verdict:
    subject = subject_in(folder, returned, dtype, layers)
    return verify_subject(subject, {"tp": 2}, VerifyOptions(strict=False, timeout_s=200.0))


@pytest.mark.processes
@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_deep_model_is_clean(tmp_path, dtype):
    verdict = verdict_on(tmp_path, "x + y", dtype, DEEP)
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)


@pytest.mark.slow
@pytest.mark.processes
def test_a_bug_of_ten_roundings_in_the_last_layer_is_found_there(tmp_path):
    verdict = verdict_on(tmp_path, "(x + y) * (1 + 10 * 2**-8 * last)")
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    named = verdict.numbers.module or verdict.numbers.disagreements[0]
    assert named.key.name.startswith(f"{LAYERS - 1}"), str(verdict)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("returned", "code"), [("x + y", ExitCode.CLEAN), ("x + y * (1 + last)", ExitCode.FINDINGS)], ids=["right", "wrong"]
)
def test_references_keep_how_far_roundings_move_them(tmp_path, returned, code):
    """The mesh may run elsewhere, where nothing can be measured any more."""
    subject, file = subject_in(tmp_path, returned, "bfloat16"), str(tmp_path / "references")
    options = VerifyOptions(strict=False, timeout_s=200.0)
    failure, said = record_references(file, subject, {"tp": 1}, options)
    assert failure is None, said
    assert said.endswith("how far roundings move them was measured")
    verdict = verify_subject(subject, {"tp": 2}, options, references=file)
    assert verdict.exit_code is code, str(verdict)


@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize("allowed", [True, False])
def test_products_in_tf32_are_measured_where_the_program_allows_them(tmp_path, allowed):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(ALLOWING.replace("{allowed}", str(allowed))))
    file = str(tmp_path / "references")
    assert (
        record_references(file, Script(Program(path=str(script))), {"dp": 1}, VerifyOptions(timeout_s=60.0))[0] is None
    )
    run = load(file).run
    assert run.tf32 is allowed
    assert (run.spread is not None) is allowed
    if run.spread is not None:
        (gradient,) = (one for one in run.entries if one.key.kind == "gradient" and one.key.name == "weight")
        assert isinstance(gradient, Record)
        assert gradient.value is not None
        largest, moved = float(gradient.value.abs().max()), run.spread[gradient.key].largest
        assert 2**-12 < moved / largest < 2**-6, "10 bits are kept, a few roundings behind one another"


ALLOWING = """
    import torch
    torch.backends.cuda.matmul.allow_tf32 = {allowed}
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
"""

FLOAT8 = """
    import torch, torch.distributed as dist, torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("gloo")
    n, r = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)

    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            scale = 448 / x.abs().max()
            return (x * scale).to(torch.float8_e4m3fn).to(x.dtype) / scale

        @staticmethod
        def backward(ctx, g):
            return g

    class Layer(nn.Linear):
        def forward(self, x):
            return nn.functional.linear(Rounded.apply(x), Rounded.apply(self.weight), self.bias)

    model = DistributedDataParallel(nn.Sequential(Layer(16, 32), nn.GELU(), Layer(32, 16)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(1))
    for x in data:
        loss = model(x.chunk(n)[r]).square().mean()
        ({returned}).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize(("returned", "code"), [("loss", ExitCode.CLEAN), ("loss / n", ExitCode.FINDINGS)])
def test_scales_of_each_rank_are_rounding_in_float8(tmp_path, returned, code):
    (tmp_path / "script.py").write_text(textwrap.dedent(FLOAT8).replace("{returned}", returned))
    options = VerifyOptions(strict=False, timeout_s=100.0)
    assert verify_subject(Script(Program(path=str(tmp_path / "script.py"))), {"dp": 2}, options).exit_code is code


CANCELLING = """
    import torch, torch.distributed as dist, torch.nn as nn
    dist.init_process_group("gloo")
    n, r = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    policy = nn.Linear(5, 7)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    states, actions, rewards = torch.randn(8, 5), torch.randint(0, 7, (8, 4)), torch.randn(8, 4)
    advantages = (rewards - rewards.mean(1, keepdim=True)) / rewards.std(1, keepdim=True)
    states, actions, advantages = (x[r::n] for x in (states, actions, advantages))
    logp = policy(states).log_softmax(-1).gather(1, actions)
    loss = -((logp - logp.detach()).exp() * advantages).mean(){more}
    loss.backward()
    for p in policy.parameters():
        dist.all_reduce(p.grad)
        p.grad /= n
    optimizer.step()
"""


@pytest.mark.slow_but_one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize("wrong", [False, True])
def test_a_loss_that_is_zero_in_theory_is_rounding_and_nothing_else_is(tmp_path, wrong):
    """As the first of a policy that has not moved: the mean of normalised advantages."""
    text = CANCELLING.replace("{more}", " + 1e-4 * (n - 1)" if wrong else "")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    verdict = verify_subject(Script(Program(path=str(script))), {"dp": 2}, VerifyOptions(strict=False, timeout_s=120.0))
    assert verdict.exit_code is (ExitCode.FINDINGS if wrong else ExitCode.CLEAN), str(verdict)


def test_every_result_moves_by_its_rounding_and_so_does_what_comes_back():
    moving = Perturbation.of(Intervention(torch.bfloat16, 1))
    assert moving is not None
    x = torch.randn(64, 64, dtype=torch.bfloat16, requires_grad=True)
    y = x * 2
    before = y.detach().clone()
    moving.result((x,), y)
    off = ((y.detach() - before).abs() / before.abs()).float()
    assert 0.0 < off.max() <= 2**-6
    y.backward(torch.ones_like(y))
    assert not bool((x.grad == 2).all())
    assert bool(((x.grad - 2).abs() <= 2**-5).all())


def test_what_backward_reads_of_a_result_is_that_which_has_moved():
    x = torch.rand(8, requires_grad=True)
    y = x.exp()
    Perturbation(torch.float32, 1).result((x,), y)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


def test_a_gradient_that_is_differentiated_again_moves_and_keeps_its_graph():
    """As a Hessian times a vector has it: the gradient of ``y`` is made of ``y``."""
    moving, x = Perturbation(torch.bfloat16, 1, finer=True), torch.rand(64, 64).add(0.5).requires_grad_()
    y = x.square()
    moving.result((x,), y)
    z = y.square()
    moving.result((y,), z)
    (first,) = torch.autograd.grad(z.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    for actual, expected in ((first, 4 * x**3), (second, 12 * x**2)):
        off = ((actual - expected).abs() / expected).detach()
        assert 0.0 < off.max() <= 2**-4


def test_what_is_finer_a_view_or_a_constant_does_not_move():
    moving = Perturbation(torch.bfloat16, 1)
    x = torch.randn(8, dtype=torch.bfloat16)
    for args, result in (((x,), x.view(2, 4)), ((), torch.ones(3, dtype=torch.bfloat16)), ((x,), x.float() * 2)):
        before = result.clone()
        moving.result(args, result)
        assert torch.equal(result, before)


def test_the_spread_is_that_of_the_farthest_run():
    def run(value: float) -> RankRun:
        return RankRun([Record(Key("loss", "", None), UNTYPED, "", torch.tensor([1.0, value]))])

    moved = spread_of(run(1.0), [run(1.25), run(0.5)])[Key("loss", "", None)]
    assert (moved.largest, round(moved.rms, 6)) == (0.5, round(0.5 / 2**0.5, 6))


def test_the_nearest_place_is_taken_and_none_where_nothing_is_near():
    whole = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    piece = whole[4:] * 1.01
    place = nearest_place(piece, whole, 0.25)
    assert place is not None
    assert torch.equal(taken(whole, place), whole[4:])
    assert nearest_place(-piece, whole, 0.25) is None


def disagreement(name: str, apart: float) -> ValueDisagreement:
    off = Difference((0,), 1.0, 1.0 + apart, 1, 1, apart, 1.0, None)
    return ValueDisagreement(Key("gradient", name, None), "f32[1]", Against.ALONE, 0, (0,), (0,), (0,), off, "differs")


@pytest.mark.parametrize(("sizes", "asked"), [((1e-3, 0.5), torch.float32), ((0.5, 1e-3), None), ((), None)])
def test_in_single_precision_rounding_is_asked_for_where_what_disagrees_first_does_by_little(sizes, asked):
    numbers = Numbers(disagreements=tuple(disagreement(str(at), apart) for at, apart in enumerate(sizes)))
    run = RankRun(dtypes={torch.float32})
    assert rounding_to_measure([run, run], numbers, VerifyOptions()) is asked
