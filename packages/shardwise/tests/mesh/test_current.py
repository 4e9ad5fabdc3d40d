"""The current mesh: every way of giving one, nesting, threads, and local axes."""

import threading
from collections import OrderedDict

import pytest

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, SpmdValueError
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import (
    current_entry,
    current_mesh,
    current_mesh_all_names,
    current_mesh_names,
    set_current_mesh,
)
from shardwise.types.placement import R
from shardwise.types.tensor_type import Ground, TensorType, constant_type

TP, CP, DP, ONE = MeshAxis.of(4, 1), MeshAxis.of(2, 4), MeshAxis.of(2, 8), MeshAxis.of(1, 1)
MESH = {"dp": DP, "cp": CP, "tp": TP, "one": ONE}


class Group:
    """A stand-in for a process group."""

    def __init__(self, axis):
        self.axis = axis

    def __mesh_axis__(self):
        return self.axis


class Grid:
    """A stand-in for a DeviceMesh."""

    def __init__(self, axes, names):
        self.groups = {name: Group(axis) for name, axis in zip(names or (), axes, strict=False)}
        self.mesh_dim_names = names

    def get_group(self, name):
        return self.groups[name]


TP_GROUP, CP_GROUP, ONE_GROUP = Group(TP), Group(CP), Group(ONE)
GRID = Grid((CP, TP, ONE), ("cp", "tp", "one"))


@pytest.mark.parametrize(
    ("given", "axes", "names", "groups"),
    [
        (MESH, {DP, CP, TP}, {"dp": DP, "cp": CP, "tp": TP}, {}),
        (OrderedDict(tp=TP), {TP}, {"tp": TP}, {}),
        ({"tp": TP, "sp": TP}, {TP}, {"tp": TP, "sp": TP}, {}),
        ({"tp": TP_GROUP, "cp": CP}, {CP, TP}, {"tp": TP, "cp": CP}, {TP: TP_GROUP}),
        (GRID, {CP, TP}, {"cp": CP, "tp": TP}, {CP: GRID.groups["cp"], TP: GRID.groups["tp"]}),
        (frozenset({TP, ONE, CP}), {CP, TP}, {}, {}),
        ([TP_GROUP, CP_GROUP, ONE_GROUP], {CP, TP}, {}, {TP: TP_GROUP, CP: CP_GROUP}),
        ((TP,), {TP}, {}, {}),
        (frozenset(), set(), {}, {}),
        ({}, set(), {}, {}),
    ],
)
def test_every_form_of_a_mesh_is_understood(given, axes, names, groups):
    with set_current_mesh(given):
        assert current_mesh() == axes
        assert isinstance(current_mesh(), frozenset)
        assert current_mesh_names() == names
        assert {axis: group for axis, group in current_entry().groups.items() if axis.size() > 1} == groups
    assert current_mesh() is current_mesh_names() is current_mesh_all_names() is current_entry() is None


def test_an_axis_of_one_rank_is_not_active_but_its_name_is_known():
    with set_current_mesh(GRID):
        assert ONE not in current_mesh()
        assert "one" not in current_mesh_names()
        assert current_mesh_all_names() == {"cp": CP, "tp": TP, "one": ONE}
        assert current_entry().named_groups["one"] is GRID.groups["one"]


def test_an_entry_is_ordered_outermost_first_and_knows_its_constants():
    with set_current_mesh(MESH):
        entry = current_entry()
        assert entry.ordered_axes == (DP, CP, TP)
        assert entry.constant is constant_type((TP, CP, DP))
        assert entry.zero is TensorType.of({TP: R, CP: R, DP: R}, ground=Ground.ZERO)


def test_changing_the_names_that_a_query_returned_changes_nothing():
    with set_current_mesh(MESH):
        current_mesh_names().clear()
        current_mesh_all_names().clear()
        assert current_mesh_names()["tp"] is TP
        assert current_mesh_all_names()["one"] is ONE


def test_an_inner_mesh_hides_the_outer_one_and_gives_it_back():
    with set_current_mesh(MESH, local_axes=("dp",)):
        outer = current_entry()
        with set_current_mesh({"ep": TP}):
            assert current_mesh() == {TP}
            assert current_mesh_names() == {"ep": TP}
            assert current_entry().local_axes == frozenset()
            assert current_entry().outer is outer
        assert current_entry() is outer


def test_the_outer_mesh_comes_back_after_an_exception():
    with set_current_mesh(MESH):
        outer = current_entry()
        with pytest.raises(KeyError, match="boom"), set_current_mesh({"ep": TP}):
            raise KeyError("boom")
        assert current_entry() is outer


def test_left_out_axes_are_those_of_the_current_mesh():
    with set_current_mesh(GRID, local_axes=("cp",)):
        outer = current_entry()
        with set_current_mesh():
            assert current_mesh_names() == {"cp": CP, "tp": TP}
            assert current_entry().groups == outer.groups
            assert current_entry().local_axes == frozenset()
        with set_current_mesh(local_axes=("cp", "tp")):
            assert current_entry().local_axes == {CP, TP}


def test_it_decorates_functions_again_and_again():
    @set_current_mesh(MESH)
    def names(depth):
        return names(depth - 1) if depth else sorted(current_mesh_names())

    assert names(0) == names(2) == ["cp", "dp", "tp"]
    assert current_mesh() is None


def test_a_new_thread_has_no_mesh_and_does_not_disturb_others():
    seen = []

    def look():
        seen.append(current_mesh())
        with set_current_mesh({"ep": TP}):
            seen.append(current_mesh())

    with set_current_mesh(MESH):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert current_mesh() == {DP, CP, TP}
    assert seen == [None, {TP}]


@pytest.mark.parametrize(
    ("given", "error", "code", "words"),
    [
        (3, SpmdArgumentError, "SW903", "got 3 of type int"),
        ("tp", SpmdArgumentError, "SW903", "got 'tp' of type str"),
        (2.5, SpmdArgumentError, "SW903", "got 2.5 of type float"),
        ({"tp": 4}, SpmdArgumentError, "SW903", "got 4 of type int as one of its axes"),
        ({TP: "tp"}, SpmdArgumentError, "SW903", "which is no name"),
        (["tp"], SpmdArgumentError, "SW903", "got 'tp' of type str as one of its axes"),
        ([object], SpmdArgumentError, "SW905", "of type type"),
        (Grid((TP,), None), SpmdValueError, "SW903", "has no dim names"),
        (
            {"a": TP, "b": MeshAxis.of(2, 2)},
            SpmdTypeError,
            "SW901",
            r"b \(2:2\) and a \(4:1\) .*not orthogonal.*independent radix dimensions",
        ),
        ([TP_GROUP, Group(TP)], SpmdTypeError, "SW901", "is used twice in the mesh"),
        (
            frozenset({MeshAxis.of(2, 5), MeshAxis.of(2, 6), MeshAxis.of(2, 7)}),
            SpmdTypeError,
            "SW901",
            r"MeshAxis\(2:7\), MeshAxis\(2:6\), MeshAxis\(2:5\) in the mesh are not orthogonal: every two of them are",
        ),
    ],
)
def test_what_is_no_mesh_is_refused_and_nothing_becomes_current(given, error, code, words):
    with pytest.raises(error, match=words) as caught, set_current_mesh(given):
        pass
    assert type(caught.value) is error
    assert caught.value.code == code
    assert current_mesh() is None


def test_a_mesh_without_dim_names_is_told_how_to_get_them():
    with pytest.raises(ValueError, match="dim names") as caught, set_current_mesh(Grid((TP,), None)):
        pass
    assert "mesh_dim_names" in str(caught.value)


def test_overlapping_axes_are_named_as_the_pair_they_are():
    axes = [MeshAxis.of(2, 16), MeshAxis.of(4, 1), MeshAxis.of(2, 2)]
    with pytest.raises(SpmdTypeError, match=r"MeshAxis\(2:2\) and MeshAxis\(4:1\)") as caught, set_current_mesh(axes):
        pass
    assert "2:16" not in str(caught.value)


def test_left_out_axes_need_a_current_mesh():
    with pytest.raises(RuntimeError, match="there is none") as caught, set_current_mesh():
        pass
    assert caught.value.code == "SW904"


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        ((), set()),
        (("dp",), {DP}),
        (("dp", "cp"), {DP, CP}),
        (("cp", DP), {DP, CP}),
        (("dp", Group(CP), TP), {DP, CP, TP}),
        (("one", "dp"), {DP}),
        (["dp"], {DP}),
    ],
)
def test_local_axes_are_an_outermost_prefix(local, expected):
    with set_current_mesh(MESH, local_axes=local):
        assert current_entry().local_axes == expected


@pytest.mark.parametrize(
    ("local", "error", "code", "words"),
    [
        (("zz", "dp"), ValueError, "SW902", r"unknown axes \['zz'\]; the mesh has \['cp', 'dp', 'one', 'tp'\]"),
        (("dp", DP), ValueError, "SW903", r"local_axes=\('dp', .*\) has duplicates: \[dp\]"),
        ((MeshAxis.of(2, 16),), ValueError, "SW903", r"outside the mesh: \[.*the mesh has \[dp, cp, tp\]"),
        (("tp",), ValueError, "SW903", r"come before all global axes.*: local \[tp\], global \[dp, cp\]"),
        (("dp", "tp"), ValueError, "SW903", "local_axes must come before all global axes"),
        ("dp", TypeError, "SW905", "local_axes is a tuple of axes, got 'dp'"),
        (3, TypeError, "SW905", "local_axes is a tuple of axes, got 3"),
    ],
)
def test_other_local_axes_are_refused(local, error, code, words):
    with pytest.raises(error, match=words) as caught, set_current_mesh(MESH, local_axes=local):
        pass
    assert isinstance(caught.value, SpmdTypeError)
    assert caught.value.code == code
    assert current_mesh() is None
