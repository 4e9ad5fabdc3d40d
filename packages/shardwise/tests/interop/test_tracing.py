"""The trace: one line per typed call, from the user's place, on threads that asked for it."""

import logging
import os
import subprocess
import sys
import threading

import pytest
import torch

from shardwise.collectives.annotate import assert_type, mutate_type
from shardwise.collectives.remesh import reinterpret_mesh
from shardwise.diagnostics.source import user_site
from shardwise.interop.calls.tracing import is_tracing, log_call, trace
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types.notation import TypedShape
from shardwise.types.placement import P, R, S, V
from shardwise.types.tensor_type import UNTYPED, TensorType

DP, CP, TP = MeshAxis.of(2, 8), MeshAxis.of(2, 4), MeshAxis.of(4, 1)


@pytest.fixture
def lines(caplog):
    """The messages logged so far, as a function."""
    caplog.set_level(logging.INFO, logger="shardwise.trace")
    with set_current_mesh({"dp": DP, "cp": CP, "tp": TP}):
        yield lambda: [record.getMessage() for record in caplog.records if record.name == "shardwise.trace"]


def here(offset=0):
    """The place of the caller as a trace line begins."""
    return f"test_tracing.py:{sys._getframe(1).f_lineno + offset}  "


def test_an_annotation_logs_what_was_and_what_is(lines):
    x = torch.zeros(8, 16)
    with trace():
        assert_type(x, {"dp": R, "tp": S(1)})
        first = here(-1)
        assert_type(x, {"tp": P})
        second = here(-1)
        mutate_type(x, "tp", src=P, dst=R)
    old, new = "f32[8, 16@tp] {dp: R}", "f32[8, 16] {dp: R, tp: P}"
    one, two, three = lines()
    assert one.endswith(f"{first}assert_type(f32[8, 16] {{}}) -> {old}")
    assert two.endswith(f"{second}assert_type({old}) -> {new}")
    assert three.endswith(f"mutate_type({new}) -> f32[8, 16] {{dp: R, tp: R}}")


def test_a_change_of_mesh_logs_source_and_result(lines):
    x = assert_type(torch.zeros(2), {"dp": R, "cp": R})
    with trace():
        reinterpret_mesh(x, frozenset({MeshAxis.of(4, 4)}))
    [line] = lines()
    assert line.endswith("reinterpret_mesh(f32[2] {dp: R, cp: R}) -> f32[2] {{dp,cp}: R}")


def test_nothing_is_logged_outside_or_when_switched_off(lines):
    assert_type(torch.zeros(2), {"tp": R})
    with trace(), trace(enabled=False):
        assert_type(torch.zeros(2), {"tp": R})
    assert not is_tracing()
    assert lines() == []


def test_the_switch_is_restored_after_an_error(lines):
    with pytest.raises(ZeroDivisionError), trace():
        assert is_tracing()
        _ = 1 / 0
    assert not is_tracing()


def test_calls_in_which_nothing_is_typed_are_not_worth_a_line(lines):
    untyped = TypedShape("float32", (2,), UNTYPED)
    log_call(user_site(0), "add", [untyped, UNTYPED], untyped)
    log_call(user_site(0), "add", [], None)
    assert lines() == []


def test_a_call_may_take_many_and_return_nothing(lines):
    typed = TypedShape("float32", (2,), TensorType.of({TP: V}))
    log_call(user_site(0), "all_reduce", [typed, TensorType.of({DP: R})], None)
    log_call(None, "all_reduce", [typed], None)
    first, second = lines()
    assert first.endswith(f"{here(-3)}all_reduce(f32[2] {{tp: V}}, {{dp: R}}) -> None")
    assert second == "?:0  all_reduce(f32[2] {tp: V}) -> None"


def test_paths_are_relative_to_the_longest_import_folder(lines, monkeypatch):
    folder = os.path.dirname(__file__)
    monkeypatch.setattr(sys, "path", ["", os.path.dirname(folder), folder + os.sep])
    with trace():
        assert_type(torch.zeros(2), {"tp": R})
    [line] = lines()
    assert line.startswith("test_tracing.py:")


def test_threads_trace_on_their_own(lines):
    seen = []
    with trace():
        thread = threading.Thread(target=lambda: seen.append(is_tracing()))
        thread.start()
        thread.join()
        assert is_tracing()
    assert seen == [False]


def run(arguments, variables):
    clean = {name: value for name, value in os.environ.items() if not name.endswith("_TRACE")}
    return subprocess.run(
        [sys.executable, *arguments], env=clean | variables, capture_output=True, text=True, check=True
    )


@pytest.mark.processes
@pytest.mark.parametrize(
    ("variables", "traced"),
    [
        ({"SHARDWISE_TRACE": "1"}, True),
        ({"SPMD_TYPES_TRACE": "1"}, True),
        ({"SHARDWISE_TRACE": "0", "SPMD_TYPES_TRACE": "1"}, False),
        ({"SHARDWISE_TRACE": ""}, False),
        ({}, False),
    ],
)
def test_the_environment_switches_every_thread(variables, traced):
    program = (
        "import threading; from shardwise.interop.calls.tracing import is_tracing; "
        "thread = threading.Thread(target=lambda: print(is_tracing())); thread.start(); thread.join()"
    )
    assert run(["-c", program], variables).stdout == f"{traced}\n"


@pytest.mark.processes
def test_a_program_that_never_configured_logging_gets_its_trace(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, shardwise\nshardwise.assert_type(torch.zeros(2), {shardwise.MeshAxis.of(4, 1): shardwise.R})\n"
    )
    traced = run([program], {"SHARDWISE_TRACE": "1"})
    assert traced.stderr == "program.py:2  assert_type(f32[2] {}) -> f32[2] {MeshAxis(4:1): R}\n"
