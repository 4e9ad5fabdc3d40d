"""How axes are called and printed."""

import time

import pytest

from shardwise.mesh.axis import MeshAxis, _reset, set_printoptions
from shardwise.mesh.current import set_current_mesh
from shardwise.mesh.names import register_name

of = MeshAxis.of


@pytest.fixture(autouse=True)
def _no_names_from_elsewhere():
    _reset()
    yield
    _reset()


@pytest.mark.parametrize(
    ("axis", "printed", "debug"),
    [
        (of(4, 2), "MeshAxis(4:2)", "MeshAxis{4:2}"),
        (MeshAxis.from_layout((3, 2), (4, 1)), "MeshAxis((3, 2):(4, 1))", "MeshAxis{(3, 2):(4, 1)}"),
        (of(1, 1), "MeshAxis(trivial)", "MeshAxis(trivial){1:1}"),
    ],
)
def test_an_axis_without_a_name_prints_its_layout(axis, printed, debug):
    assert repr(axis) == printed
    with set_printoptions(debug=True):
        assert repr(axis) == debug
    assert repr(axis) == printed


@pytest.mark.parametrize(
    ("names", "printed"),
    [(["tp"], "tp"), (["tp", "SP"], "SP"), (["default_pg"], "default_pg"), (["default_pg", "world"], "world")],
)
def test_the_first_name_is_shown_and_the_default_group_last(names, printed):
    for name in names:
        register_name(of(4, 1), name)
    assert repr(of(4, 1)) == printed
    assert of(4, 1).names == frozenset(names)


def test_a_name_of_two_axes_is_shown_with_the_layout_on_both():
    register_name(of(4, 1), "tp")
    assert repr(of(4, 1)) == "tp"
    register_name(of(2, 1), "tp")
    register_name(of(2, 8), "dp")
    assert [repr(of(4, 1)), repr(of(2, 1)), repr(of(2, 8))] == ["tp[4:1]", "tp[2:1]", "dp"]
    register_name(of(8, 1), "tp")
    assert repr(of(8, 1)) == "tp[8:1]"
    assert of(8, 1).names == {"tp[8:1]"}


def test_an_axis_of_one_rank_keeps_its_name_and_makes_no_other_ambiguous():
    register_name(of(1, 1), "tp")
    register_name(of(4, 1), "tp")
    assert repr(of(1, 1)) == "tp(trivial)"
    assert repr(of(4, 1)) == "tp"
    register_name(of(2, 1), "tp")
    assert repr(of(1, 1)) == "tp(trivial)"


def test_the_flattening_of_named_axes_is_printed_as_such():
    register_name(of(4, 1), "tp")
    register_name(of(2, 4), "cp")
    register_name(of(3, 8), "dp")
    assert repr(of(8, 1)) == "{cp,tp}"
    assert repr(of(24, 1)) == "{dp,cp,tp}"
    assert repr(MeshAxis.from_layout((3, 4), (8, 1))) == "{dp,tp}"
    assert repr(of(16, 1)) == "MeshAxis(16:1)"
    with set_printoptions(debug=True):
        assert repr(of(6, 4)) == "{dp,cp}{6:4}"


def test_a_larger_named_axis_that_leads_nowhere_is_given_up():
    register_name(of(6, 1), "six")
    register_name(of(4, 1), "four")
    register_name(of(2, 4), "two")
    assert repr(of(8, 1)) == "{two,four}"


def test_debug_print_has_all_names_and_the_layout():
    register_name(of(4, 1), "TP")
    register_name(of(4, 1), "SP")
    set_printoptions(debug=True)
    assert repr(of(4, 1)) == "SP/TP{4:1}"
    _reset()
    assert repr(of(4, 1)) == "MeshAxis(4:1)"


def test_the_current_mesh_knows_its_axes_by_its_own_names():
    register_name(of(4, 1), "mesh_tp")
    with set_current_mesh({"tp": of(4, 1), "dp": of(2, 4)}):
        assert repr(of(4, 1)) == "tp"
        assert repr(of(8, 1)) == "{dp,tp}"
    assert repr(of(4, 1)) == "mesh_tp"


def test_axes_of_a_current_mesh_without_names_do_not_disturb_print():
    with set_current_mesh(frozenset({of(4, 1), of(2, 4)})):
        assert repr(of(4, 1)) == "MeshAxis(4:1)"
        assert repr(of(8, 1)) == "MeshAxis(8:1)"


def test_printing_does_not_blow_up_with_the_number_of_names():
    for power in range(40):
        for size in (2, 4, 8):
            register_name(of(size, 2**power), f"axis_{power}_{size}")
    start = time.perf_counter()
    # 3 * 2^60 ranks: every way of taking factors ends one prime short.
    assert repr(of(3 * 2**60, 1)) == f"MeshAxis({3 * 2**60}:1)"
    assert time.perf_counter() - start < 1
