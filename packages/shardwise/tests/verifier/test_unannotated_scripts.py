"""Scripts that meet what ``shardwise verify`` puts in the place of a job: its devices, its groups, its crashes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.layouts.micro_batches import MicroBatches
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject
from shardwise.verifier.text import Verdict


def verdict_on(folder: Path, text: str) -> Verdict:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False)
    return verify_subject(Script(Program(path=str(script))), {"dp": 2}, options)


HSDP = Path(__file__).parents[1] / "programs" / "unannotated" / "right" / "hsdp.py"


@pytest.mark.nightly
@pytest.mark.processes
def test_a_program_with_dtensors_is_verified_in_a_process_that_has_checked_it():
    mesh = {"replicate": 2, "shard": 2}
    CliRunner().invoke(main, ["check", str(HSDP), "--mesh", "replicate=2,shard=2"])
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False)
    verdict = verify_subject(Script(Program(path=str(HSDP))), mesh, options)
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)


@pytest.mark.processes
def test_a_crash_ends_the_run_though_another_rank_waits_for_ever(tmp_path):
    verdict = verdict_on(
        tmp_path,
        """
        import time
        import torch.distributed as dist

        dist.init_process_group("gloo")
        if dist.get_world_size() > 1:
            if dist.get_rank() == 1:
                raise RuntimeError("out of luck")
            time.sleep(1000)
        """,
    )
    assert verdict.failure is not None
    assert verdict.failure.text == "rank 1 of 2 raised RuntimeError: out of luck; rank 0 waited for the others"


@pytest.mark.processes
def test_backward_of_a_function_may_name_a_device(tmp_path):
    verdict = verdict_on(
        tmp_path,
        """
        import torch
        import torch.distributed as dist

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * torch.full((1,), 2.0, device="cuda")

            @staticmethod
            def backward(ctx, grad):
                return grad * torch.full((1,), 2.0, device="cuda").type("torch.cuda.FloatTensor")

        dist.init_process_group("nccl")
        torch.cuda.random.manual_seed_all(0)
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2).cuda()
        Double.apply(model(torch.ones(4, 3).cuda())).sum().backward()
        """,
    )
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)


@pytest.mark.processes
@pytest.mark.parametrize(
    "join", ['dist.init_process_group("gloo")', 'init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))']
)
def test_a_process_group_exists_when_the_script_has_made_it(tmp_path, join):
    verdict = verdict_on(
        tmp_path,
        f"""
        import os
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        before = dist.is_initialized()
        {join}
        if before or not dist.is_initialized():
            raise RuntimeError(f"initialized before: {{before}}, after: {{dist.is_initialized()}}")
        torch.manual_seed(0)
        torch.nn.Linear(3, 2)(torch.ones(4, 3)).sum().backward()
        """,
    )
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)


def run_of(*steps: list[list[float]]) -> dict[Key, Record]:
    """Micro-batches of each step, and behind them the gradient with which it ends."""
    entries: dict[Key, Record] = {}
    micro = 0
    for step, batches in enumerate(steps, 1):
        for batch in batches:
            micro += 1
            key = Key("input", "0 of Linear", None, micro)
            entries[key] = Record(key, UNTYPED, "", torch.tensor([batch]).T)
        key = Key("gradient", "weight", None, step)
        entries[key] = Record(key, UNTYPED, "", torch.ones(1))
    return entries


def batches_of(ranks: list[dict[Key, Record]], alone: dict[Key, Record]) -> MicroBatches:
    runs = [*ranks, alone]
    return MicroBatches(ranks, alone, [[at for at, key in enumerate(run) if key.kind == "gradient"] for run in runs])


FIRST, THIRD = (Key("input", "0 of Linear", None, nth) for nth in (1, 3))


def test_micro_batches_may_be_composed_otherwise_within_a_step():
    alone = run_of([[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]])
    ranks = [run_of([[1.0], [2.0]], [[5.0], [6.0]]), run_of([[3.0], [4.0]], [[7.0], [8.0]])]
    batches = batches_of(ranks, alone)
    assert batches.explain(FIRST)
    assert batches.explain(THIRD)
    assert batches.regrouped


def test_samples_of_another_step_are_other_samples():
    alone = run_of([[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]])
    ranks = [run_of([[1.0], [2.0]], [[3.0], [4.0]]), run_of([[5.0], [6.0]], [[7.0], [8.0]])]
    batches = batches_of(ranks, alone)
    assert not batches.explain(FIRST)
    assert not batches.explain(THIRD)
    assert not batches.regrouped


def test_a_sample_that_two_ranks_have_is_not_the_batch():
    alone = run_of([[1.0, 2.0], [3.0, 4.0]])
    assert not batches_of([run_of([[1.0], [2.0]]), run_of([[2.0], [3.0]])], alone).explain(FIRST)


def test_a_pipeline_runs_its_first_micro_batch_once_more_beforehand():
    alone = run_of([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]])
    assert batches_of([run_of([[1.0], [1.0], [2.0]]), run_of([[3.0], [3.0], [4.0]])], alone).explain(FIRST)
    assert not batches_of([run_of([[1.0], [1.0], [2.0]]), run_of([[2.0], [2.0], [4.0]])], alone).explain(FIRST)


KEYWORDS = """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(8, 4)

        def forward(self, features=None, batch=None):
            return self.inner(batch["features"] if features is None else features)

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Classifier())
    rank = dist.get_rank()
    features = torch.arange(32.0).view(4, 8)
    model(CALL).square().mean().backward()
"""


@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize("call", ["features=x", "batch={'features': x}"], ids=["keyword", "dict"])
@pytest.mark.parametrize(
    ("share", "parts"),
    [("features.chunk(dist.get_world_size())[rank]", False), ("features + rank", True)],
    ids=["its share", "data of its own"],
)
def test_data_given_by_keyword_or_in_a_dict_are_inputs_too(tmp_path, call, share, parts):
    verdict = verdict_on(tmp_path, KEYWORDS.replace("CALL", call.replace("x", share)))
    assert (verdict.numbers.parting is not None, verdict.numbers.disagreements) == (parts, ())


MORE_MICRO_BATCHES = """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank, size = dist.get_rank(), dist.get_world_size()
    for step in range(2):
        mine = (torch.arange(64.0).view(8, 8) + step).sin().chunk(size)[rank]
        parts = mine.chunk(2 if size > 1 else 1)  # as the stages of a pipeline want it
        for part in parts:
            (model(part).square().mean() / len(parts)).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("", "", ExitCode.CLEAN),
        (" / len(parts)", "", ExitCode.FINDINGS),
        (".chunk(size)[rank]", ".chunk(size)[0]", None),
    ],
    ids=["right", "not divided", "the same data"],
)
def test_a_step_may_have_more_micro_batches_on_a_mesh(tmp_path, old, new, code):
    verdict = verdict_on(tmp_path, MORE_MICRO_BATCHES.replace(old, new))
    assert verdict.exit_code is code if code is not None else verdict.exit_code is not ExitCode.CLEAN, str(verdict)


TWO_MODELS = """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    class Centred(torch.nn.Linear):
        def forward(self, x):
            mean = super().forward(x).detach().mean(0)
            SUM
            return super().forward(x) - mean

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    made, judge = DDP(Centred(4, 4)), DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(judge.parameters(), lr=0.1)
    x = torch.arange(32.0).view(8, 4).sin().chunk(dist.get_world_size())[dist.get_rank()]
    given = (2 * made(x)).detach().clamp(-1, 1)
    judge(given).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("mean", "code"),
    [("dist.all_reduce(mean); mean /= dist.get_world_size()", ExitCode.CLEAN), ("pass", ExitCode.FINDINGS)],
    ids=["of all ranks", "of its own"],
)
def test_what_one_model_has_made_is_no_data_for_another(tmp_path, mean, code):
    assert verdict_on(tmp_path, TWO_MODELS.replace("SUM", mean)).exit_code is code


@pytest.mark.processes
def test_a_rank_that_steps_more_often_than_one_rank_does_is_no_wrong_number(tmp_path):
    verdict = verdict_on(
        tmp_path,
        """
        import torch
        import torch.distributed as dist
        from torch.distributed.algorithms.join import Join
        from torch.nn.parallel import DistributedDataParallel as DDP

        dist.init_process_group("gloo")
        torch.manual_seed(0)
        ddp = DDP(torch.nn.Linear(8, 2))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        with Join([ddp]):
            for step in range(2 + dist.get_rank()):
                optimizer.zero_grad()
                ddp(torch.full((4, 8), float(step))).sum().backward()
                optimizer.step()
        """,
    )
    assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)
    assert verdict.numbers.replicas == 4, "what Join has made equal again is compared between ranks"


@pytest.mark.processes
def test_batch_norm_over_each_ranks_own_rows_is_named_as_such(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        dist.init_process_group("gloo")
        torch.manual_seed(0)
        ddp = DDP(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        x = torch.randn(16, 4).chunk(dist.get_world_size())[dist.get_rank()]
        ddp(x).square().mean().backward()
        optimizer.step()
        """)
    )
    options = VerifyOptions(strict=False, timeout_s=60.0)
    verdict = verify_subject(Script(Program(path=str(script))), {"dp": 2}, options)
    assert verdict.exit_code is ExitCode.FINDINGS
    assert str(verdict).startswith("wrong numbers: output of 1 (BatchNorm1d) is not that of the run on one rank")
    assert "help: in training BatchNorm1d takes the mean and variance of each rank's own rows" in str(verdict)


HANDED_ON = """
    import torch
    import torch.distributed as dist

    class Request:
        pass

    class Start(torch.autograd.Function):
        @staticmethod
        def forward(ctx, request, x):
            ctx.request, request.sum = request, x.clone()
            request.work = dist.all_reduce(request.sum, async_op=True)
            return x.new_empty(0, requires_grad=True)

        @staticmethod
        def backward(ctx, *unused):
            ctx.request.back.wait()
            return None, ctx.request.gradient

    class Finish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, request, dummy):
            ctx.request = request
            request.work.wait()
            return request.sum * 1

        @staticmethod
        def backward(ctx, gradient):
            ctx.request.gradient = gradient.clone()
            ctx.request.back = dist.all_reduce(ctx.request.gradient, async_op=True)
            return None, gradient.new_empty(0)

    dist.init_process_group("gloo")
    size, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 6)
    data = torch.randn(8, 6).chunk(size)[rank]
    request = Request()
    total = Finish.apply(request, Start.apply(request, model(data).sum(0)))
    (total.square().sum() / size).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
"""


@pytest.mark.processes
def test_a_handle_that_one_function_leaves_for_the_next_is_that_of_the_program(tmp_path):
    verdict = verdict_on(tmp_path, HANDED_ON)
    assert verdict.failure is None, str(verdict)
    assert verdict.numbers.equal >= 2
    assert not verdict.numbers.disagreements


CLIPPED = """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    size, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(6, 3))
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.01)
    data = torch.randn(2, 8, 6)
    for x in data:
        loss = 50 * model(x.chunk(size)[rank]).square().mean()
        ({loss}).backward()
        {clip}
        optimizer.step()
        optimizer.zero_grad()
"""
BY_TORCH = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
BY_HAND = """norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        for p in model.parameters():
            p.grad.mul_((1.0 / norm).clamp(max=1.0))"""
BY_NUMBERS = """norm = sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5
        for p in model.parameters():
            if norm > 1.0:
                p.grad.data.mul_(1.0 / (norm + 1e-6))"""
BY_DIVISION = """norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        for p in model.parameters():
            p.grad /= max(norm, torch.ones(()))"""


@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize(
    "clip", [BY_TORCH, BY_HAND, BY_NUMBERS, BY_DIVISION], ids=["torch", "hand", "numbers", "division"]
)
def test_a_scale_that_clipping_hides_is_seen_in_the_factor(tmp_path, clip):
    right = verdict_on(tmp_path, CLIPPED.format(optimizer="SGD", loss="loss", clip=clip))
    assert right.exit_code is ExitCode.CLEAN
    wrong = verdict_on(tmp_path, CLIPPED.format(optimizer="SGD", loss="loss / size", clip=clip))
    assert wrong.exit_code is ExitCode.FINDINGS
    assert {one.key.kind for one in wrong.numbers.disagreements} == {"clip"}
    first = wrong.numbers.disagreements[0]
    assert first.said == "differs from the run on one rank: the norm is 0.5 times as large"
    assert first.hint.startswith("1/2 of it, 2 being the size of dp")


@pytest.mark.processes
def test_a_factor_that_does_not_clip_and_one_of_each_rank_are_no_difference(tmp_path):
    mild = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)"
    assert verdict_on(tmp_path, CLIPPED.format(optimizer="SGD", loss="loss", clip=mild)).exit_code is ExitCode.CLEAN
    number = "[p.grad.mul_(size).div_(3 * size) for p in model.parameters()]"
    scaled = CLIPPED.format(optimizer="SGD", loss="loss", clip=number)
    assert verdict_on(tmp_path, scaled).exit_code is ExitCode.CLEAN
    apart = "weight = (0.1 * (1 + rank) * torch.ones(())).clamp(max=1.0)"
    assert verdict_on(tmp_path, CLIPPED.format(optimizer="SGD", loss="loss", clip=apart)).exit_code is ExitCode.CLEAN


STAGES = """
    import torch, torch.distributed as dist, torch.nn as nn
    dist.init_process_group("gloo")
    n, r = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    layers = nn.ModuleDict({str(at): nn.Linear(4, 4, bias=False) for at in range(4)} if DRAWN else {})
    kept = range(4 // n) if FIRST else range(r * 4 // n, (r + 1) * 4 // n)
    stage = nn.ModuleDict({str(at): layers[str(at)] if DRAWN else nn.Linear(4, 4, bias=False) for at in kept})
    optimizer, x = torch.optim.SGD(stage.parameters(), lr=0.1), torch.randn(3, 4)
    if r:
        dist.recv(x, r - 1)
        x.requires_grad_()
    y = x
    for layer in stage.values():
        y = layer(y)
    if r < n - 1:
        dist.send(y.detach(), r + 1)
        gradient = torch.empty(3, 4)
        dist.recv(gradient, r + 1)
        y.backward(gradient)
    else:
        y.square().mean().backward()
    if r:
        dist.send(x.grad, r - 1)
    optimizer.step()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("drawn", "first", "code", "said"),
    [
        (True, False, ExitCode.CLEAN, ""),
        (
            True,
            True,
            ExitCode.FINDINGS,
            "parameter 0.weight before the first step is that of one rank on rank 0 and on",
        ),
        (False, True, ExitCode.INCONCLUSIVE, "the two runs part"),
    ],
    ids=["each its own", "the first on all", "drawn as many as are kept"],
)
def test_a_stage_that_keeps_the_layers_of_another_is_named(tmp_path, drawn, first, code, said):
    """Where it draws only what it keeps, from the same seed, nobody knows what it is meant to be."""
    verdict = verdict_on(tmp_path, STAGES.replace("DRAWN", str(drawn)).replace("FIRST", str(first)))
    assert verdict.exit_code is code, str(verdict)
    assert said in str(verdict)
    assert ("rank 1, and no rank has 2.weight" in str(verdict)) == (code is ExitCode.FINDINGS)


LOGGED = """
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    size, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in torch.randn(2, 8, 6):
        loss = model(x.chunk(size)[rank]).square().LOSS
        logged = loss.LOGGED
        dist.all_reduce(logged)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(logged.item() / size)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("logged", "loss", "code"),
    [
        ("detach()", "mean()", ExitCode.CLEAN),
        ("data", "mean()", ExitCode.CLEAN),
        ("detach()", "sum()", ExitCode.FINDINGS),
        ("clone()", "mean()", ExitCode.CLEAN),
    ],
    ids=["detached", "by data", "a sum", "a copy"],
)
def test_a_loss_is_what_it_was_before_it_was_summed_in_place_for_a_log(tmp_path, logged, loss, code):
    verdict = verdict_on(tmp_path, LOGGED.replace("LOGGED", logged).replace("LOSS", loss))
    assert verdict.exit_code is code, str(verdict)
    assert ("gradient of" in str(verdict)) == (code is ExitCode.FINDINGS)


UNEVEN = """
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    size, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    cuts = [0, 6, 10] if size == 2 else [0, 10]
    for x, y in zip(torch.randn(2, 10, 6), torch.randint(0, 3, (2, 10))):
        x, y = x[cuts[rank] : cuts[rank + 1]], y[cuts[rank] : cuts[rank + 1]]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            p.grad *= WEIGHT
            dist.all_reduce(p.grad)
        optimizer.step()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("weight", "code"), [("len(x) / 10", ExitCode.CLEAN), ("1 / size", ExitCode.FINDINGS)], ids=["weighted", "a mean"]
)
def test_means_over_numbers_of_each_rank_are_right_where_gradients_are_weighted_by_them(tmp_path, weight, code):
    verdict = verdict_on(tmp_path, UNEVEN.replace("WEIGHT", weight))
    assert verdict.exit_code is code, str(verdict)
    assert "every rank divides its loss by a number of its own (6, 4)" in str(verdict)
    assert any(one.key.kind == "gradient" for one in verdict.numbers.disagreements) == (code is ExitCode.FINDINGS)


SPARSE = """
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    size, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    table = torch.nn.Embedding(9, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.01)
    for ids in torch.randint(0, 9, (3, 8)):
        optimizer.zero_grad()
        table(ids.chunk(size)[rank]).square().mean().backward()
        rows = [None] * size
        own = table.weight.grad.coalesce()
        dist.all_gather_object(rows, (own.indices(), own.values()))
        ids, values = (torch.cat(x, dim) for x, dim in zip(zip(*rows), (1, 0)))
        table.weight.grad = torch.sparse_coo_tensor(ids, values / SCALE, (9, 4))
        optimizer.step()
"""


@pytest.mark.processes
@pytest.mark.parametrize(("scale", "code"), [("size", ExitCode.CLEAN), ("1", ExitCode.FINDINGS)], ids=["mean", "sum"])
def test_gradients_of_some_rows_are_compared(tmp_path, scale, code):
    verdict = verdict_on(tmp_path, SPARSE.replace("SCALE", scale))
    assert verdict.exit_code is code, str(verdict)
    assert ("gradient of weight in step 1" in str(verdict)) == (code is ExitCode.FINDINGS)
