"""Are the types of cond, while_loop, scan and map true? Every claim against the numbers, forward and backward."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.distributed as dist
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_slices
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise.checker import typecheck
from shardwise.checker.control_flow.interpreter import Interpreting
from shardwise.checker.patching.installation import acquire, release
from shardwise.oracle.global_types import check_claims
from shardwise.oracle.local_types import check_claim
from shardwise.types.placement import I, P, R, S, V
from shardwise.worlds.world import run_processes
from shardwise_devtools.sweep.checker_answers import rulesets

torch.set_num_threads(1)
FIRST = torch.tensor(True)
SHAPES = {"x": (4, 5), "y": (4, 5), "w": (5, 5), "b": (5,)}


def loop(body, x, rounds=2):
    return while_loop(lambda i, x: i < rounds, lambda i, x: (i + 1, body(x)), (0, x))[1]


PROGRAMS = {
    "cond of a constant": ("x", lambda x: torch.cond(FIRST, torch.sin, lambda x: x * 2, (x,))),
    "cond, linear": ("x", lambda x: torch.cond(FIRST, lambda x: x * 3, torch.neg, (x,))),
    "cond of an operand's sign": ("x y", lambda x, y: torch.cond(y.sum() > 0, torch.sin, torch.cos, (x,))),
    "cond that picks an operand": (
        "x y", lambda x, y: torch.cond(FIRST, lambda x, y: x * 2, lambda x, y: y * 2, (x, y))
    ),
    "cond that mixes": ("x w", lambda x, w: torch.cond(FIRST, lambda x, w: x @ w, lambda x, w: x * 2, (x, w))),
    "cond of sums": ("x y", lambda x, y: torch.cond(FIRST, lambda x, y: x.sum(0), lambda x, y: y.sum(0), (x, y))),
    "cond with zeros": ("x", lambda x: torch.cond(FIRST, lambda x: x * 2, torch.zeros_like, (x,))),
    "cond with ones": ("x", lambda x: torch.cond(FIRST, lambda x: x * 2, torch.ones_like, (x,))),
    "loop": ("x", lambda x: loop(torch.tanh, x)),
    "loop, linear": ("x w", lambda x, w: loop(lambda x: x @ w, x)),
    "loop that adds": ("x y", lambda x, y: loop(lambda x: x + y, x)),
    "loop from zeros": ("x", lambda x: loop(lambda y: y + x, torch.zeros(x.shape, dtype=x.dtype))),
    "loop that is not run": ("x y", lambda x, y: loop(lambda x: x * y, x, rounds=0)),
    "loop by an operand": (
        "x y", lambda x, y: while_loop(lambda n, x: n > 0.5, lambda n, x: (n / 2, x * 2), (y.abs().sum(), x))[1]
    ),
    "scan": ("x b", lambda x, b: scan(lambda c, x: (c + x, c * 2), b, x)),
    "scan, nonlinear": ("x b", lambda x, b: scan(lambda c, x: (torch.tanh(c + x), c * x), b, x)),
    "scan along dim 1": (
        "x", lambda x: scan(lambda c, x: (c + x, c * 2), torch.zeros(len(x), dtype=x.dtype), x, dim=1)
    ),
    "scan with a matrix": ("x w b", lambda x, w, b: scan(lambda c, x: (c @ w + x, c * 2), b, x, reverse=True)),
    "map": ("x", lambda x: map_slices(lambda x: (torch.sin(x), x * 2), x)),
    "map that sums": ("x", lambda x: map_slices(lambda x: x.sum(), x)),
    "map with another": ("x b", lambda x, b: map_slices(lambda x, b: x * b, x, b)),
    "map with a matrix": ("x w", lambda x, w: map_slices(lambda x, w: w @ x, x, w)),
    "map of two": ("x y", lambda x, y: map_slices(lambda pair: pair[0] * pair[1], [x, y])),
    "associative scan": ("x", lambda x: associative_scan(torch.add, x, 0, combine_mode="generic")),
}  # fmt: skip
LOCALLY_KNOWN = {"map": 3, "scan": 6, "loop": 3, "cond, linear": 4, "cond that picks an operand": 6}
GLOBALLY_KNOWN = {"map": 3, "cond, linear": 4, "scan": 1, "scan along dim 1": 2, "loop": 3, "map with a matrix": 3}


@pytest.fixture(autouse=True)
def interpreted():
    """There are many runs, and compiling each would take minutes; values are compared with torch's elsewhere."""
    acquire()
    yield
    release()


def values(names):
    generator = torch.Generator().manual_seed(11)
    return [torch.randn(SHAPES[name], dtype=torch.float64, generator=generator) for name in names.split()]


def plainly(program):
    """The program as the numbers see it: interpreted, unchecked."""

    def run(*operands):
        with Interpreting():
            return program(*operands)

    return run


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_local_claim_is_refuted(name):
    names, program = PROGRAMS[name]
    operands = values(names)
    known = 0
    with rulesets(dtensor=False) as ruleset:
        for places in itertools.product((R, I, V, P), repeat=len(operands)):
            answer = ruleset.locally(program, operands, places)
            if isinstance(answer, str):
                assert not answer.startswith("the checker fails"), answer
                continue
            known += 1
            assert None not in answer, f"{places}: nothing known about a result"
            for seed in (0, 1):
                lie = check_claim(plainly(program), operands, places, answer, seed=seed)
                assert lie is None, f"{places} -> {answer}: {lie}"
    assert known >= LOCALLY_KNOWN.get(name, 2)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_global_claim_is_refuted_and_the_true_ones_are_known(name):
    names, program = PROGRAMS[name]
    with rulesets(dtensor=False) as ruleset:

        def ask(fn, local, places):
            return ruleset.globally(program, local, places)

        report = check_claims(plainly(program), values(names), ask, sizes=(2,))
    assert [str(lie) for lie in report.wrong] == []
    assert report.covered >= GLOBALLY_KNOWN.get(name, 1)
    if name not in OF_ONE_COURSE:
        assert [str(gap) for gap in report.missing if not gap.reason.startswith("SW11")] == []


OF_ONE_COURSE = {
    "cond that picks an operand",
    "cond that mixes",
    "cond of sums",
    "cond with ones",
    "loop that is not run",
}
"""What is true of these because of the branch that is taken, or because the body is not run, is not known."""


def recurrence(x, w, flag, close):
    """A branch, a scan over features and a loop, summed; ``close`` is what turns a rank's sum into the loss."""
    h = torch.cond(flag, lambda x, w: torch.tanh(x @ w), lambda x, w: x @ w, (x, w))
    _, states = scan(lambda c, t: (torch.sin(c + t), c * t), torch.zeros(len(h), dtype=h.dtype), h.t())
    _, out = while_loop(lambda i, z: i < 2, lambda i, z: (i + 1, (z @ w).tanh()), (torch.tensor(0), states.t()))
    return close(out.sum())


def on_two_ranks():
    """The loss and the gradients on this rank, and whether they are those of one device."""
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(3)
    rows, weight = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in ((8, 4), (4, 4)))
    whole = [rows.clone().requires_grad_(), weight.clone().requires_grad_()]
    with Interpreting():
        wanted = recurrence(*whole, torch.tensor(True), lambda total: total)
    wanted_rows, wanted_weight = torch.autograd.grad(wanted, whole)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    with spmd.set_current_mesh(mesh), typecheck(local=False):
        x = spmd.assert_type(rows.chunk(2)[rank].clone().requires_grad_(), {"dp": S(0)})
        w = spmd.assert_type(weight.clone().requires_grad_(), {"dp": R})
        loss = recurrence(x, w, torch.tensor(True), lambda total: spmd.all_reduce(total, "dp", src=P, dst=I))
    found_rows, found_weight = torch.autograd.grad(loss, (x, w))
    dist.all_reduce(found_weight)  # R in forward, so its gradient is a pending sum
    torch.testing.assert_close(loss.detach(), wanted.detach())
    torch.testing.assert_close(found_rows, wanted_rows.chunk(2)[rank])
    torch.testing.assert_close(found_weight, wanted_weight)
    return spmd.get_axis_local_type(loss, mesh.get_group("dp"))


@pytest.mark.processes
def test_a_program_that_checks_clean_computes_on_two_processes_what_one_device_computes():
    assert run_processes(on_two_ranks, 2) == [I, I]
