"""Whether a thread is checked, as programs, threads and the compiler see it; and erasure for a whole program."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from shardwise.collectives.annotate import assert_type, mutate_type, reinterpret_no_grad
from shardwise.collectives.queries import reveal_type
from shardwise.collectives.remesh import reinterpret_mesh
from shardwise.interop.running import session
from shardwise.interop.running.session import TYPE_CHECKING, is_type_checking
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import I, P, R, S, V

DP, TP = MeshAxis.of(2, 4), MeshAxis.of(4, 1)


class Check:
    strict = local = True
    collecting = paused = False

    def is_suspended(self):
        return False


@pytest.fixture
def check():
    check = Check()
    before = session.enter(check)
    yield check
    session.enter(before)


def test_nothing_is_checked_by_default():
    assert session.current() is None
    assert not is_type_checking()
    assert not TYPE_CHECKING
    assert repr(TYPE_CHECKING) == "TYPE_CHECKING(False)"


def test_a_running_check_is_seen(check):
    assert session.current() is check
    assert is_type_checking()
    assert TYPE_CHECKING
    assert repr(TYPE_CHECKING) == "TYPE_CHECKING(True)"


def test_a_paused_check_is_not(check):
    check.paused = True
    assert session.current() is None
    assert not TYPE_CHECKING


def test_another_thread_is_not_checked(check):
    seen = []
    thread = threading.Thread(target=lambda: seen.append((is_type_checking(), bool(TYPE_CHECKING))))
    thread.start()
    thread.join()
    assert seen == [(False, False)]


def graph_of(function, *inputs):
    """The code of the one graph that ``function`` compiles to; a graph break is an error."""
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph.code)
        return graph.forward

    torch._dynamo.reset()
    result = torch.compile(function, backend=backend, fullgraph=True)(*inputs)
    [code] = graphs
    return code, result


def plain(x, w):
    h = x @ w
    return torch.relu(h) + 1


def annotated(x, w):
    x = assert_type(x, {TP: R, DP: S(0)})
    [x, w] = assert_type([x, w], {TP: R})
    h = x @ w
    if TYPE_CHECKING:
        h = h * 2
    assert_type(h, {TP: P}, {TP: I}, "nonsense")
    mutate_type(h, TP, src=V, dst=R)
    reinterpret_no_grad(h, TP, dst=I)
    h = reinterpret_mesh(reveal_type(h), {TP: R})
    return torch.relu(h) + (100 if is_type_checking() else 1)


def test_a_compiled_program_has_no_trace_of_its_annotations():
    x, w = torch.ones(4, 3), torch.ones(3, 2)
    code, result = graph_of(annotated, x, w)
    assert code == graph_of(plain, x, w)[0]
    assert torch.equal(result, plain(x, w))


def test_compiling_while_checking_is_like_not_checking(check):
    x, w = torch.ones(4, 3), torch.ones(3, 2)
    assert graph_of(annotated, x, w)[0] == graph_of(plain, x, w)[0]


PROGRAM = """
import torch, shardwise
from shardwise import MeshAxis, P, R
from shardwise.interop.running import session
x = torch.zeros(2)
assert shardwise.assert_type(x, {"anything": P}) is x
shardwise.reveal_type(x)
print(session.erased, x.__dict__, shardwise.has_local_type(x), dict(shardwise.get_local_type(x)))
"""


@pytest.mark.slow
@pytest.mark.processes
def test_a_program_is_erased_by_the_environment(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, program], env=os.environ | {"SHARDWISE_ERASE": "1"}, capture_output=True, text=True, check=True
    )
    assert run.stdout == "True {} False {}\n"


def test_erasure_is_off_by_default():
    assert session.erased is False
