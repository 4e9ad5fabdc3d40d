import inspect

import pytest

from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError, attach
from shardwise.diagnostics.source_location import Operand, SourceLocation
from shardwise.mesh.current import set_current_mesh


def test_the_finding_takes_code_message_and_help_from_the_error():
    error = SpmdValueError("src must be P, got R", code="SW202", help=('convert(x, "tp", src=R, dst=P)',))
    finding = attach(error, op="all_reduce", axis="tp", operands=[Operand("x", "f32[4] {tp: R}")], facts=["n is 2"])
    assert error.finding is finding
    assert (finding.code, finding.op, finding.axis) == ("SW202", "all_reduce", "tp")
    assert finding.headline == "SW202 bad-transition: src must be P, got R"
    assert finding.help == ('convert(x, "tp", src=R, dst=P)',)
    assert finding.facts == ("n is 2",)
    assert finding.operands[0].name == "x"


def test_the_place_is_the_call_in_the_users_code():
    error = SpmdTypeError("no", code="SW110")
    line = inspect.currentframe().f_lineno + 1
    finding = attach(error)
    assert (finding.location.file, finding.location.line) == (__file__, line)
    assert finding.location.function == "test_the_place_is_the_call_in_the_users_code"


def test_a_given_place_wins():
    location = SourceLocation("model.py", 88)
    assert attach(SpmdTypeError("no", code="SW110"), location=location).location == location


def test_further_lines_of_the_message_are_facts():
    finding = attach(SpmdTypeError("bad\n  rank 0 has 1\n\n  rank 1 has 2", code="SW110"), facts=["3 in all"])
    assert finding.message == "bad"
    assert finding.facts == ("rank 0 has 1", "rank 1 has 2", "3 in all")


def test_a_finding_once_attached_stays():
    error = SpmdTypeError("no", code="SW110")
    assert attach(error, op="add") is attach(error, op="mul")


def test_an_unknown_code_is_a_bad_argument():
    assert attach(SpmdTypeError("no", code="XX000")).code == "SW905"


def test_an_error_that_no_boundary_saw_tells_its_place_from_the_traceback():
    line = inspect.currentframe().f_lineno + 1
    with pytest.raises(SpmdTypeError) as caught, set_current_mesh(4):
        pass
    error = caught.value
    assert error.attached is None
    assert (error.finding.code, error.finding.location.line) == ("SW903", line)
    assert error.finding is error.attached


def test_an_error_that_was_never_raised_has_no_finding():
    assert SpmdTypeError("no").finding is None
