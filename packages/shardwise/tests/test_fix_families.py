"""Has one mistake of each family a fix after which the types are clean? Plain torch.distributed, typed inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwise.cli.runs.fix_search import edits_of, search
from shardwise.diagnostics.result import ExitCode

from .fix_trials import START, STEP, SUM, Judge

CASES = {
    "every rank draws the same numbers for its piece of a weight": (
        "    from shardwise.train import rng\n    same = rng(1, synchronised=('dp', 'tp')).generator()\n"
        "    w = nn.Parameter(torch.randn(8 // mesh['tp'].size(), 4, generator=same))\n"
        "    spmd.assert_type(w, {'dp': R, 'tp': S(0)})\n    y = x @ w.t()\n",
        "torch.randn(8, 4, generator=same).chunk(mesh['tp'].size(), 0)[mesh['tp'].get_local_rank()].clone()",
    ),
    "a helper leaves its sum pending for two uses": (
        "    def contracted(h):\n        return spmd.linear(h, piece, out_partial_axes='tp')\n\n"
        "    piece = spmd.assert_type(torch.randn(4, 2), {'dp': R, 'tp': S(1)})\n"
        "    h = spmd.assert_type(torch.randn(4, 2), {'dp': S(0), 'tp': S(1)})\n"
        "    y = contracted(h)\n    z = x + y\n    w = model(y)\n",
        "return spmd.all_reduce(spmd.linear(h, piece, out_partial_axes=",
    ),
    "a piece of a pending sum is cut": (
        "    y = spmd.reinterpret(spmd.convert(x, 'tp', src=I, dst=R) * x.ndim, 'tp', src=V, dst=P)\n"
        "    z = y.chunk(mesh['tp'].size(), 1)[mesh.get_local_rank('tp')]\n",
        'spmd.all_reduce(y, "tp", src=P, dst=R).chunk(',
    ),
    "an invariant term meets a pending sum": (
        "    y = spmd.assert_type(torch.randn(4), {'dp': R, 'tp': P})\n"
        "    b = spmd.assert_type(torch.randn(4), {'dp': R, 'tp': I})\n    z = y + b\n",
        'spmd.convert(b, "tp", src=I, dst=P, expert_mode=True)',
    ),
    "a maximum is declared for all ranks": (
        "    @spmd.local_map(in_types=({'dp': S(0), 'tp': S(1)},), out_types={'dp': S(0), 'tp': R})\n"
        "    def largest(part):\n        own = part.amax(-1, keepdim=True)\n        return own\n\n"
        "    y = largest(spmd.assert_type(torch.randn(4, 2), {'dp': S(0), 'tp': S(1)}))\n",
        'return spmd.all_reduce(own, "tp", src=V, dst=R, op="max")',
    ),
    "a penalty on a piece scales the loss": (
        "    piece = spmd.assert_type(torch.randn(4, 2, requires_grad=True), {'dp': R, 'tp': V})\n"
        "    y = model(x).square().sum() * piece.square().sum()\n",
        'spmd.all_reduce(piece.square().sum(), "tp", src=V, dst=I)',
    ),
    "a function that sums is given what is complete, and one that copies a pending sum": (
        "    class Reduce(torch.autograd.Function):\n"
        "        @staticmethod\n        def forward(ctx, t):\n"
        "            dist.all_reduce(t, group=tp)\n            return t\n"
        "        @staticmethod\n        def backward(ctx, gradient):\n            return gradient\n"
        "        @staticmethod\n        def spmd_typecheck(*, t):\n"
        "            return spmd.rules.all_reduce(t, tp, src=P, dst=I)\n\n"
        "    y = Reduce.apply(x.clone()) * 2\n",
        "y = x.clone() * 2",
    ),
    "nothing is known of an autograd function": (
        "    class Double(torch.autograd.Function):\n"
        "        @staticmethod\n        def forward(ctx, t):\n            return t * 2\n"
        "        @staticmethod\n        def backward(ctx, gradient):\n            return gradient * 2\n\n"
        "    y = Double.apply(x)\n",
        "spmd.register_local_autograd_function(Double)",
    ),
    "backward starts from what every rank has": (
        "    penalty, w = model.weight.square().sum(), model.weight\n    w.grad = torch.autograd.grad(penalty, w)[0]\n"
        "    dist.all_reduce(model.weight.grad, group=dp)\n",
        'torch.autograd.grad(spmd.convert(penalty, "dp", src=R, dst=P), w)',
    ),
    "a value is on another scale where it is added": (
        "    total = spmd.all_reduce(spmd.sum(x, out_partial_axes='dp'), 'dp', src=P, dst=R)\n"
        "    y = total + total / mesh['dp'].size()\n",
        'get_world_size(group=mesh.get_group("dp"))',
    ),
    "the last bucket is left out": (
        "    backward()\n    dist.all_reduce(model.bias.grad, group=dp)\n    flat = model.weight.grad.view(-1)\n"
        "    for first in range(0, 15, 5):\n        dist.all_reduce(flat[first : first + 5], group=dp)\n" + STEP,
        "in range(0, flat.numel(), 5):",
    ),
    "two buckets overlap": (
        "    backward()\n    flat, half = model.weight.grad.view(-1), 8\n"
        "    dist.all_reduce(model.bias.grad, group=dp)\n"
        "    dist.all_reduce(flat[: half + 1], group=dp)\n    dist.all_reduce(flat[half:], group=dp)\n" + STEP,
        "dist.all_reduce(flat[: half], group=dp)",
    ),
    "an entry of a pending sum is overwritten": (
        "    y = spmd.reinterpret(x.sum(0), 'dp', src=V, dst=P)\n    y[0] = 1.0\n",
        'y = spmd.all_reduce(y, "dp", src=P, dst=R)',
    ),
    "a copy of a pending sum is written in place": (
        "    y = spmd.reinterpret(x.sum(0), 'dp', src=V, dst=P)\n    z = y.clone().clamp_(min=0)\n",
        'z = spmd.all_reduce(y.clone(), "dp", src=P, dst=R).clamp_(min=0)',
    ),
    "a parameter is overwritten by a pending sum": (
        "    y = spmd.reinterpret(model(x).detach().sum(0), 'dp', src=V, dst=P)\n"
        "    y = spmd.convert(y, 'tp', src=I, dst=R)\n"
        "    w = spmd.assert_type(torch.zeros(4, requires_grad=True), {'dp': R, 'tp': R})\n"
        "    with torch.no_grad():\n        w.copy_(y)\n",
        'w.copy_(spmd.all_reduce(y, "dp", src=P, dst=R))',
    ),
    "a product in place would make what takes part in autograd vary": (
        "    piece = spmd.assert_type(torch.randn(4, 4), {'dp': R, 'tp': V})\n"
        "    w = spmd.assert_type(torch.zeros(4, 4, requires_grad=True), {'dp': R, 'tp': R})\n"
        "    h = w * 2\n    h.mul_(piece)\n",
        'h.mul_(spmd.all_reduce(piece, "tp", src=V, dst=R))',
    ),
    "an axis is misspelt": (
        "    y = spmd.assert_type(torch.randn(4, 4), {'dpp': R, 'tp': I})\n    z = y * 2\n",
        "{\"dp\": R, 'tp': I}",
    ),
    "an annotation names a dim that is not there": (
        "    y = spmd.assert_type(torch.randn(4), {'dp': spmd.S(1), 'tp': I})\n    z = y * 2\n",
        "{'dp': S(0), 'tp': I}",
    ),
    "a spec shards what is said to be replicate": (
        "    y = spmd.assert_type(torch.randn(4, 4), {'dp': R, 'tp': I}, spmd.PartitionSpec('dp', None))\n"
        "    z = y * 2\n",
        "{'dp': V, 'tp': I}",
    ),
    "three uses of what has no type": (
        "    u = spmd.assert_type(torch.randn(4, 4), {'dp': S(0)})\n    a = u * 2\n    b = u * 3\n    c = u + u\n",
        "{'dp': S(0), \"tp\": R})",
    ),
    "an annotation names another dim": (
        "    spmd.assert_type(x, {'dp': S(1), 'tp': I})\n    y = model(x)\n",
        "{'dp': S(0), 'tp': I})",
    ),
    "one gradient is not summed": (
        "    backward()\n    dist.all_reduce(model.weight.grad, group=dp)\n" + STEP,
        "dist.all_reduce(model.bias.grad, group=",
    ),
    "the sum is over another group": (
        "    backward()\n" + SUM.replace("group=dp", "group=tp") + STEP,
        'dist.all_reduce(p.grad, group=mesh.get_group("dp"))',
    ),
    "nobody waits": (
        "    backward()\n" + SUM.replace("group=dp", "group=dp, async_op=True") + STEP,
        "dist.all_reduce(p.grad, group=dp)",
    ),
    "the wait comes too late": (
        "    backward()\n    handles = [dist.all_reduce(p.grad, group=dp, async_op=True) for p in model.parameters()]\n"
        "    optimizer.step()\n    for handle in handles:\n        handle.wait()\n",
        "for handle in handles:",
    ),
    "gradients are clipped before their sum": (
        "    backward()\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" + SUM + STEP,
        "for parameter in model.parameters():",
    ),
    "the sum is made in every micro-batch": (
        "    for _ in range(2):\n        spmd.reinterpret(model(x).square().sum(), 'dp', src=V, dst=P).backward()\n"
        + "".join(f"    {line}\n" for line in SUM.splitlines())
        + STEP,
        "    for p in model.parameters():",
    ),
    "the loss is replicate": (
        "    loss = spmd.all_reduce(model(x).square().sum(), 'dp', src=V, dst=R)\n    loss.backward()\n" + SUM + STEP,
        "dst=I)",
    ),
    "the loss is each rank's own": (
        "    model(x).square().mean().backward()\n" + SUM + STEP,
        'spmd.reinterpret(model(x).square().mean() / dist.get_world_size(group=mesh.get_group("dp")), "dp"',
    ),
    "the ranks divide by their own counts": (
        "    total = spmd.reinterpret(x.sum(), 'dp', src=V, dst=P)\n    mean = total / (x > 0).sum()\n",
        "spmd.all_reduce(",
    ),
    "a hook sums what is summed before it": (
        "    def total(gradient):\n        return spmd.all_reduce(gradient, 'tp', src=P, dst=R)\n\n"
        "    h = spmd.convert(x.requires_grad_(), 'tp', src=I, dst=R)\n    h.register_hook(total)\n"
        "    piece = spmd.assert_type(torch.randn(4, 4), {'dp': V, 'tp': V})\n"
        "    y = spmd.all_reduce((h * piece).sum(), 'tp', src=V, dst=I)\n"
        "    spmd.reinterpret(y, 'dp', src=V, dst=P).backward()\n",
        "return gradient",
    ),
    "wrapped gradients stay unsynchronised": (
        "    ddp = nn.parallel.DistributedDataParallel(model, process_group=dp)\n    with ddp.no_sync():\n"
        "        spmd.reinterpret(ddp(x).square().mean(), 'dp', src=V, dst=P).backward()\n" + STEP,
        "parameter.grad /= dist.get_world_size(",
    ),
    "the gradient is in an expression": (
        "    backward()\n    with torch.no_grad():\n        for p in model.parameters():\n"
        "            p.sub_(0.1 * p.grad)\n",
        'dist.all_reduce(p.grad, group=mesh.get_group("dp"))',
    ),
    "dropout draws what should be equal": (
        "    y = nn.functional.dropout(x, 0.5)\n",
        'with spmd.synchronised_rng("tp"):',
    ),
    "noise comes from a stream of each rank": (
        "    with spmd.rng(0, distinct=('dp', 'tp')):\n        z = torch.randn(4)\n    y = model.bias.detach() + z\n",
        'spmd.rng(0, synchronised=("dp", "tp"))',
    ),
    "an annotation contradicts": (
        "    spmd.assert_type(model(x), {'dp': R, 'tp': I})\n",
        "{'dp': V, 'tp': I}",
    ),
    "a value is claimed before its sum": (
        "    total = spmd.reinterpret(model(x).sum(), 'dp', src=V, dst=P)\n    spmd.assert_type(total, {'dp': R})\n",
        'total = spmd.all_reduce(total, "dp", src=P, dst=R)',
    ),
    "an annotation leaves an axis open": (
        "    y = x + spmd.assert_type(torch.randn(4, 4), {'dp': R})\n",
        '"tp": I}',
    ),
    "nothing is said of a tensor": ("    y = x + torch.randn(4, 4)\n", '{"dp": V, "tp": I})'),
    "a sum runs over an axis of which nothing is said": (
        "    y = spmd.all_reduce(spmd.assert_type(torch.randn(4), {'dp': V}), 'tp', src=P, dst=R)\n",
        '"tp": P}',
    ),
    "what is written in place is a pending sum": (
        "    y = spmd.reinterpret(x.sum(0), 'dp', src=V, dst=P)\n    y.clamp_(min=0)\n",
        'y = spmd.all_reduce(y, "dp", src=P, dst=R)',
    ),
    "a coercion is rarely meant": (
        "    y = spmd.reinterpret(spmd.convert(x, 'tp', src=I, dst=R), 'tp', src=R, dst=V)\n",
        "dst=S(0))",
    ),
    "a sum of an expression is sent": (
        "    part = spmd.reinterpret(x.sum(), 'dp', src=V, dst=P)\n    dist.broadcast(part.clone(), src=0, group=dp)\n",
        'spmd.all_reduce(part.clone(), "dp", src=P, dst=R)',
    ),
    "a hook is not vouched for": (
        "    def halve(module, grad_input, grad_output):\n        return tuple(g / 2 for g in grad_input)\n\n"
        "    model.register_full_backward_hook(halve)\n    y = model(x.requires_grad_())\n",
        "spmd.register_local_backward_hook(halve)",
    ),
    "the step sums what is summed": (
        "    contract = spmd.train.TrainingContract(model, {'*': {'dp': 'step'}})\n    backward()\n"
        + SUM
        + "    contract.finalize()\n"
        + STEP,
        "pass",
    ),
    "the step leaves out a sum": (
        "    contract = spmd.train.TrainingContract(model)\n    backward()\n    contract.finalize()\n" + STEP,
        'dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))',
    ),
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", CASES)
def test_a_mistake_has_a_fix_after_which_the_types_are_clean(case: str, tmp_path: Path) -> None:
    body, added = CASES[case]
    path = tmp_path / "program.py"
    path.write_text(START + body)
    judge = Judge(path)
    result = judge.check({})
    assert result.errors, "the program is wrong"
    tried = list(search(result, judge, lambda _: None))
    assert tried, [str(finding) for finding in result.errors]
    told = "\n".join(edit.diff for edit in tried[-1].edits)
    assert tried[-1].checked == ExitCode.CLEAN, told
    assert any(line.startswith("+") and added in line for line in told.splitlines()), told


def test_a_piece_that_is_written_into_the_whole_is_gathered_first(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        START + "    piece = spmd.assert_type(torch.randn(2, 4), {'dp': R, 'tp': S(0)})\n"
        "    w = spmd.assert_type(torch.zeros(4, 4, requires_grad=True), {'dp': R, 'tp': R})\n"
        "    with torch.no_grad():\n        w.copy_(piece)\n"
    )
    judge = Judge(path, local=False)
    (finding,) = judge.check({}).errors
    assert finding.help[0] == 'all_gather(piece, "tp", src=S(0), dst=R) before copy_'
    assert not finding.fixes[0].choice
    assert next(iter(search(judge.check({}), judge, lambda _: None))).checked == ExitCode.CLEAN


@pytest.mark.parametrize("place", ["R", "I"])
def test_a_bias_beside_a_contraction_over_shards_is_made_an_addend(place: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        START + "    h = spmd.assert_type(torch.randn(4, 2), {'dp': S(0), 'tp': S(1)})\n"
        "    w = spmd.assert_type(torch.randn(4, 2), {'dp': R, 'tp': S(1)})\n"
        f"    b = spmd.assert_type(torch.randn(4), {{'dp': R, 'tp': {place}}})\n"
        "    y = spmd.all_reduce(nn.functional.linear(h, w, b), 'tp', src=P, dst=R)\n"
    )
    judge = Judge(path, local=False)
    result = judge.check({})
    (finding,) = result.errors
    expert = ", expert_mode=True" if place == "I" else ""
    assert [line.partition(" before ")[0] for line in finding.help] == [f'convert(b, "tp", src={place}, dst=P{expert})']
    assert next(iter(search(result, judge, lambda _: None))).checked == ExitCode.CLEAN


@pytest.mark.parametrize(
    ("seed", "left"),
    [
        ("dist.get_rank()", None),
        ("7 * dist.get_rank()", None),
        ("7 + dist.get_rank()", "7"),
        ("7 + 100 * dist.get_rank() + x.ndim", "7 + x.ndim"),
    ],
)
def test_draws_are_not_said_to_be_alike_under_a_seed_that_is_made_of_the_rank(
    seed: str, left: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "program.py"
    path.write_text(START + f"    torch.manual_seed({seed})\n    y = nn.functional.dropout(x, 0.5)\n")
    judge = Judge(path)
    finding, *_ = judge.check({}).errors
    assert finding.code == "SW121"
    assert not any(line.startswith("with synchronised_rng") for line in finding.help)
    assert [fix.choice for fix in finding.fixes] == ([] if left is None else [True])
    for fix in finding.fixes:
        line = len(START.splitlines()) + 1
        assert fix.help.startswith(f'torch.manual_seed({left}) in line {line}, and with synchronised_rng("tp"): ')
        (edit,) = edits_of([fix]) or ()
        assert f"    torch.manual_seed({left})\n" in edit.after
        assert judge.check({str(path): edit.after}).exit_code == ExitCode.CLEAN


def test_a_seed_that_differs_along_another_axis_leaves_the_draws_of_this_one_alike(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    seed = "torch.manual_seed(mesh.get_local_rank('dp'))"
    path.write_text(START + f"    {seed}\n    y = nn.functional.dropout(x, 0.5)\n")
    finding, *_ = Judge(path).check({}).errors
    assert (finding.code, finding.axis) == ("SW121", "tp")
    assert [fix.help for fix in finding.fixes] == [
        'with synchronised_rng("tp"): if the generators are seeded alike there'
    ]


@pytest.mark.parametrize(
    ("code", "call", "guilty"),
    [
        ("SW902", "spmd.assert_type(x, {'dp': S(0), 'tpp': I})", "'tpp'"),
        ("SW902", "spmd.all_reduce(x, 'model', src=P, dst=R)", "'model'"),
        ("SW132", "spmd.assert_type(torch.randn(4), {'dp': S(0), 'tp': spmd.S(3)})", "spmd.S(3)"),
        ("SW131", "spmd.assert_type(x, {'dp': S(1), 'tp': I})", "S(1)"),
        ("SW131", "spmd.assert_type(x + 0, {'dp': R}, spmd.PartitionSpec('dp', None))", "R"),
        ("SW130", "spmd.assert_type(x, {'dp': S(0), 'tp': spmd.R})", "spmd.R"),
        ("SW130", "spmd.assert_type(x + 0, dict(dp=R, tp=I))", "dict(dp=R, tp=I)"),
        ("SW130", "spmd.mutate_type(x, 'tp', src=V, dst=P)", "V"),
        ("SW902", "spmd.reinterpret_mesh(x, {'xp': V,\n        'yp': V})", "'xp'"),
    ],
)
def test_the_place_of_a_bad_claim_is_what_is_wrong_with_it(code: str, call: str, guilty: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"{START}    y = {call}\n")
    finding = next(one for one in Judge(path).check({}).errors if one.code == code)
    assert finding.location is not None
    line = path.read_text().splitlines()[finding.location.line - 1]
    assert line[finding.location.column : finding.location.end_column] == guilty


def test_a_piece_that_is_cut_otherwise_than_it_is_gathered_is_gathered_so_or_cut_so(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    made = "spmd.reduce_scatter(h, 'tp', src=P, dst=S({}))"
    path.write_text(
        f"{START}    h = spmd.assert_type(torch.randn(4, 4), {{'dp': S(0), 'tp': P}})\n"
        f"    y = {made.format(0)}\n    z = spmd.all_gather(y, 'tp', src=S(1), dst=R)\n"
    )
    judge = Judge(path, local=False)
    (finding,) = judge.check({}).errors
    line = len(START.splitlines()) + 2
    assert (finding.code, list(finding.help)) == (
        "SW212",
        [
            'all_gather(y, "tp", src=S(0), dst=R)',
            f"dst=S(1) in the reduce_scatter in line {line} that makes y, if it is meant to be cut so",
        ],
    )
    for fix, changed in zip(finding.fixes, ("src=S(0), dst=R", made.format(1)), strict=True):
        (edit,) = edits_of([fix]) or ()
        assert changed in edit.after
        assert judge.check({str(path): edit.after}).exit_code == ExitCode.CLEAN


def test_what_is_as_long_as_a_piece_and_said_to_be_whole_is_to_be_made_whole(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        f"{START}    h = spmd.assert_type(torch.randn(4, 6), {{'dp': R, 'tp': S(0)}})\n"
        "    angles = torch.arange(4)[:, None] * torch.ones(4, 6)\n    y = h * angles.cos()\n"
    )
    (finding,) = Judge(path, local=False).check({}).errors
    assert (finding.code, list(finding.help)) == (
        "SW402",
        ['make angles.cos() for all ranks\' elements, and convert(angles.cos(), "tp", src=R, dst=S(0)) for the piece'],
    )


@pytest.mark.parametrize("local", [True, False])
def test_what_is_advised_where_axes_to_be_flattened_differ_gives_them_one_type(local: bool, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    h = "    h = spmd.assert_type(torch.randn(4, 4), {'dp': S(0), 'tp': R})\n"
    made = "    y = spmd.reinterpret_mesh({}, init_device_mesh('cpu', (4,), mesh_dim_names=('ep',)))\n"
    path.write_text(START + h + made.format("h"))
    judge = Judge(path, local=local)
    (finding,) = judge.check({}).errors
    assert finding.code == "SW133"
    assert finding.location is not None
    assert finding.location.line == len(START.splitlines()) + 2
    assert [line.partition(" before")[0] for line in finding.help] == ["convert to S(i) over tp", "all_gather over dp"]
    for followed in ("spmd.convert(h, 'tp', src=R, dst=S(0))", "spmd.all_gather(h, 'dp', src=S(0), dst=R)"):
        assert judge.check({str(path): START + h + made.format(followed)}).exit_code == ExitCode.CLEAN


@pytest.mark.parametrize(
    ("held", "call"), [("args = (h,)", "torch.relu(*args)"), ("pieces = [h, w]", "torch.cat(pieces)")]
)
def test_no_edit_is_made_of_what_holds_an_operand(held: str, call: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        f"{START}    h = spmd.assert_type(torch.randn(4, 4), {{'dp': R, 'tp': P}})\n"
        f"    w = spmd.assert_type(torch.randn(4, 4), {{'dp': R, 'tp': R}})\n    {held}\n    y = {call}\n"
    )
    judge = Judge(path)
    (finding,) = judge.check({}).errors
    assert finding.location is not None
    assert all(operand.location is not None for operand in finding.operands), "it points at what holds them"
    assert all(edit.location.line != finding.location.line for fix in finding.fixes for edit in fix.edits)
    assert all(trial.checked == ExitCode.CLEAN for trial in search(judge.check({}), judge, lambda _: None))


def test_of_two_findings_of_one_mistake_only_the_fix_that_is_needed_is_made(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    loss = "spmd.reinterpret(model(x).square().sum(), 'dp', src=V, dst=P)"
    path.write_text(
        f"{START}    def summed():\n        for p in model.parameters():\n"
        "            dist.all_reduce(p.grad, group=dp)\n\n"
        f"    for _ in range(2):\n        {loss}.backward()\n        summed()\n    summed()\n{STEP}"
    )
    judge = Judge(path)
    result = judge.check({})
    assert [one.code for one in result.errors] == ["SW604", "SW605"]
    *others, last = search(result, judge, lambda _: None)
    assert all(not one.is_proven for one in others)
    assert last.is_proven
    (edit,) = last.edits
    assert edit.after == path.read_text().replace("        summed()\n    summed()\n", "    summed()\n")


@pytest.mark.parametrize("size", ["table(h.shape[0])", "table(h.size(-2) + 0)"])
def test_a_table_of_a_piece_that_every_rank_has_alike_is_made_whole_and_not_gathered(size: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        f"{START}    h = spmd.assert_type(torch.randn(2, 4), {{'dp': R, 'tp': S(0)}})\n\n"
        "    def table(n):\n        return torch.outer(torch.arange(n), torch.ones(4))\n\n"
        f"    angles = {size}\n    angles = spmd.all_gather(angles, 'tp', src=S(0), dst=R)\n"
        "    y = spmd.all_gather(h, 'tp', src=S(0), dst=R) * angles.cos()\n"
    )
    judge = Judge(path, local=False)
    result = judge.check({})
    assert [one.code for one in result.errors] == ["SW406"]
    *_, last = search(result, judge, lambda _: None)
    assert last.checked == ExitCode.CLEAN
    (edit,) = last.edits
    assert "normalize_axis('tp').size()" in edit.after or 'normalize_axis("tp").size()' in edit.after
    assert "angles = spmd.all_gather(angles" not in edit.after
