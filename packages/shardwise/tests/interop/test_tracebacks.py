"""What a person sees of an escaping type error: which frames, which note, and the finding it carries."""

import subprocess
import sys
import threading
import traceback

import pytest
import torch

from shardwise.collectives.annotate import assert_type
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError
from shardwise.diagnostics.finding import Finding
from shardwise.interop.calls import boundary as boundary_module
from shardwise.interop.calls.boundary import boundary
from shardwise.interop.calls.tracebacks import MODES, NOTE, UnfilteredStackTrace, traceback_filtering
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import P, R

TP = MeshAxis.of(4, 1)


def fail():
    """A call of the user's that is wrong, two of his frames deep."""
    x = torch.zeros(2)
    assert_type(x, {TP: P})
    assert_type(x, {TP: R})


def escaped(call, mode):
    with pytest.raises(SpmdTypeError) as raised, traceback_filtering(mode):
        call()
    return raised.value


def functions(error):
    return [step.tb_frame.f_code.co_name for step in steps(error)]


def steps(error):
    step = error.__traceback__
    while step is not None:
        yield step
        step = step.tb_next


def hidden(error):
    return [step.tb_frame.f_code.co_name for step in steps(error) if "__tracebackhide__" in step.tb_frame.f_locals]


def test_off_leaves_every_frame():
    error = escaped(fail, "off")
    assert functions(error)[:3] == ["escaped", "fail", "at_boundary"]
    assert "_refine" in functions(error)
    assert hidden(error) == []
    assert NOTE not in str(error)


def test_tracebackhide_marks_the_internal_frames():
    error = escaped(fail, "tracebackhide")
    assert set(functions(error)) - set(hidden(error)) == {"escaped", "fail"}
    assert NOTE not in str(error)


def test_quiet_removal_leaves_the_users_frames_and_a_note_before_the_context():
    error = escaped(fail, "quiet_remove_frames")
    assert functions(error) == ["escaped", "fail"]
    assert error.__cause__ is None
    error.context = "  In assert_type(...)"
    shown = str(error)
    assert error.message in shown
    assert "SHARDWISE_TRACEBACK_FILTERING=off" in NOTE
    assert shown.index(NOTE) < shown.index(error.context)
    assert shown.count(NOTE) == 1


def test_removal_keeps_the_whole_traceback_as_the_cause():
    error = escaped(fail, "remove_frames")
    assert functions(error) == ["escaped", "fail"]
    assert isinstance(error.__cause__, UnfilteredStackTrace)
    assert "_refine" in functions(error.__cause__)
    assert "_refine" in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(("loaded", "kept"), [(True, True), (False, False)])
def test_auto_hides_under_pytest_and_removes_elsewhere(monkeypatch, loaded, kept):
    if not loaded:
        monkeypatch.delitem(sys.modules, "pytest")
        monkeypatch.delitem(sys.modules, "IPython", raising=False)
    error = escaped(fail, "auto")
    assert ("_refine" in functions(error)) is kept
    assert (NOTE in str(error)) is not kept


def test_errors_about_arguments_are_filtered_too():
    error = escaped(lambda: assert_type(3, {TP: R}), "quiet_remove_frames")
    assert isinstance(error, SpmdArgumentError)
    assert functions(error) == ["escaped", "<lambda>"]


@pytest.mark.parametrize("mode", ["loud", "", None, True])
def test_an_unknown_mode_is_a_value_error_that_lists_the_known_ones(mode):
    with pytest.raises(ValueError, match="unknown traceback filtering mode") as raised:
        traceback_filtering(mode)
    assert all(known in str(raised.value) for known in MODES)


def test_the_mode_is_the_threads_own_and_is_restored():
    with traceback_filtering("off"):
        with traceback_filtering("quiet_remove_frames"):
            errors = []

            def run():
                with traceback_filtering("off"):
                    errors.append(escaped(fail, "off"))

            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            with pytest.raises(SpmdTypeError) as inner:
                fail()
        with pytest.raises(SpmdTypeError) as outer:
            fail()
    assert "_refine" in functions(errors[0])
    assert "_refine" not in functions(inner.value)
    assert "_refine" in functions(outer.value)


def test_only_the_outermost_boundary_filters(monkeypatch):
    filtered = []
    monkeypatch.setattr(boundary_module, "filter_frames", lambda error: filtered.append(functions(error)))

    @boundary
    def outer():
        fail()

    with pytest.raises(SpmdTypeError):
        outer()
    [frames] = filtered
    assert frames[:2] == ["at_boundary", "outer"]


def test_a_boundary_attaches_the_finding_and_keeps_the_name():
    @boundary
    def move(x):
        """Moves."""
        raise SpmdTypeError("x cannot be moved\nbecause it is heavy", code="SW202", help=("push(x)",))

    assert (move.__name__, move.__doc__) == ("move", "Moves.")
    error = escaped(lambda: move(1), "off")
    assert error.finding == Finding(
        "SW202",
        "x cannot be moved",
        location=error.finding.location,
        op="move",
        facts=("because it is heavy",),
        help=("push(x)",),
    )
    assert error.finding.location.file == __file__


def test_other_errors_pass_a_boundary_untouched():
    @boundary
    def divide(x):
        return 1 / x

    assert divide(2) == 0.5
    with pytest.raises(ZeroDivisionError) as raised, traceback_filtering("quiet_remove_frames"):
        divide(0)
    assert "divide" in functions(raised.value)


PROGRAM = """
import torch, shardwise
from shardwise import MeshAxis, P, R
x = torch.zeros(2)
shardwise.assert_type(x, {MeshAxis.of(4, 1): P})
shardwise.assert_type(x, {MeshAxis.of(4, 1): R})
"""


@pytest.mark.slow_but_one_in(2)
@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("variables", "present", "absent"),
    [
        ({}, NOTE, "asserting.py"),
        ({"SHARDWISE_TRACEBACK_FILTERING": "off"}, "asserting.py", NOTE),
        ({"SPMD_TYPES_TRACEBACK_FILTERING": "off"}, "asserting.py", NOTE),
        ({"SHARDWISE_TRACEBACK_FILTERING": "loud"}, "unknown traceback filtering mode 'loud'", NOTE),
    ],
    ids=["default", "off", "alias", "unknown"],
)
def test_the_environment_sets_the_mode_of_a_program(tmp_path, variables, present, absent):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run = subprocess.run([sys.executable, program], env=variables, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "x is P on axis MeshAxis(4:1), but it is said to be R" in run.stderr
    assert f'File "{program}", line 6' in run.stderr
    assert present in run.stderr
    assert absent not in run.stderr
