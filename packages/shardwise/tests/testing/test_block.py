"""``spmd`` as a decorator and as a block, for unittest and anywhere else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import unittest

import pytest
import torch

from shardwise import P, R, all_reduce, assert_type, current_mesh
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError
from shardwise.testing import FindingsError, spmd


def pending():
    return assert_type(torch.ones(4), {"tp": P})


def test_a_block_gives_the_mesh_and_raises_at_its_end():
    went_on = False
    with pytest.raises(FindingsError, match="SW112 partial-sum-in-nonlinear-op") as caught, spmd("tp=2") as mesh:
        assert mesh.mesh_dim_names == ("tp",)
        torch.relu(pending())
        went_on = True
    assert went_on
    assert [finding.code for finding in caught.value.result.errors] == ["SW112"]


def test_an_ignore_comment_holds_a_finding_back():
    with spmd("tp=2"):
        torch.relu(pending())  # shardwise: ignore[SW112] a test of the comment
    with pytest.raises(FindingsError, match="SW112"), spmd("tp=2"):
        torch.relu(pending())  # shardwise: ignore[SW113] of another kind

    @spmd("tp=2", ranks="all")
    def on_all_ranks():
        torch.relu(pending())  # shardwise: ignore[SW112] a test of the comment

    on_all_ranks()


def test_after_a_block_nothing_is_left():
    with spmd({"dp": 2, "tp": 2}):
        torch.neg(pending())
    assert not current_mesh()
    assert not torch.distributed.is_initialized()
    torch.relu(torch.ones(2))


def test_an_exception_leaves_the_block_with_the_findings_as_a_note():
    with pytest.raises(ZeroDivisionError) as caught, spmd("tp=2"):
        torch.relu(pending())
        1 / 0  # noqa: B018
    assert "SW112" in caught.value.__notes__[0]
    assert not torch.distributed.is_initialized()


def test_a_decorated_method_of_unittest_fails_with_the_findings():
    class Sums(unittest.TestCase):
        @spmd(mesh="tp=2")
        def test_wrong(self):
            torch.relu(pending())

        @spmd(mesh="tp=2", ranks="all")
        def test_right(self, spmd_mesh):
            assert all_reduce(pending(), "tp", dst=R)[0].item() == spmd_mesh.size()

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Sums).run(result)
    assert result.testsRun == 2
    assert not result.errors
    ((test, text),) = result.failures
    assert test.id().endswith("test_wrong")
    assert "SW112 partial-sum-in-nonlinear-op" in text


def test_a_decorated_coroutine_is_one():
    @spmd(mesh="tp=2", expect="SW112")
    async def test_it(spmd_mesh):
        await asyncio.sleep(0)
        torch.relu(pending())
        return spmd_mesh

    asyncio.run(test_it())


def test_what_one_of_all_ranks_raises_says_which_rank():
    @spmd(mesh="tp=2", ranks="all")
    def test_it(spmd_mesh):
        torch.neg(pending())
        assert spmd_mesh.get_rank() == 0

    with pytest.raises(AssertionError) as caught:
        test_it()
    assert "on rank 1 (tp=1)" in caught.value.__notes__


def test_modules_among_the_arguments_are_copied_for_each_rank():
    seen = []

    @spmd(mesh="tp=2", ranks="all")
    def test_it(layer):
        layer.weight.data += 1
        seen.append(layer.weight.mean().item())
        torch.neg(pending())

    layer = torch.nn.Linear(1, 1, bias=False)
    before = layer.weight.mean().item()
    test_it(layer=layer)
    assert seen == [before + 1] * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [({"ranks": "all"}, "a with block is run by one rank"), ({"ranks": [0, 1]}, "a with block is run by one rank")],
)
def test_a_block_is_run_by_one_rank(options, said):
    with pytest.raises(SpmdArgumentError, match=said), spmd("tp=2", **options):
        pass


def test_a_wrong_mesh_is_refused_where_it_is_written():
    with pytest.raises(SpmdValueError, match="axis tp has size 'x', which is not a number of ranks"):
        spmd(mesh="tp=x")
    with pytest.raises(SpmdArgumentError, match="spmd decorates functions and methods"):
        spmd(mesh="tp=2")(object())


@pytest.mark.processes
@pytest.mark.usefixtures("warm_python")
def test_unittest_shows_the_findings_as_a_failure(tmp_path):
    source = """
import torch, unittest
from shardwise import *
from shardwise.testing import spmd

class TestMlp(unittest.TestCase):
    def test_block(self):
        with spmd("tp=2"):
            torch.relu(assert_type(torch.ones(4), {"tp": P}))
"""
    (tmp_path / "test_mlp.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "test_mlp"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert "SW112 partial-sum-in-nonlinear-op" in done.stderr
    assert "FAILED (failures=1)" in done.stderr
