"""Mesh axes are values: one object per layout, made from sizes, process groups or whatever says how."""

import copy
import gc
import pickle
import threading
from types import SimpleNamespace

import pytest

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError
from shardwise.mesh.axis import MeshAxis, _axis_of, flatten_axes
from shardwise.mesh.layout import Layout

of = MeshAxis.of


class Group:
    """A stand-in for a process group, known to the fixture below."""

    def __init__(self, ranks, name=None):
        self.ranks, self.name = ranks, name


@pytest.fixture(autouse=True)
def _groups_are_known(monkeypatch):
    monkeypatch.setattr(
        "shardwise.mesh.axis.ranks_of_group", lambda obj: (obj.ranks, obj.name) if isinstance(obj, Group) else None
    )


def test_equal_layouts_are_one_axis():
    assert of(4, 1) is MeshAxis(Layout((2, 2), (2, 1)))
    assert of(4, 1) is MeshAxis.from_layout([2, 2], [2, 1])
    assert of(4, 1) != of(4, 2)
    assert of(4, 1) != "tp"
    assert {of(4, 1): "tp"}[of(4, 1)] == "tp"


def test_all_axes_of_one_rank_are_one_axis():
    assert of(1, 5) is of(1, 1) is of(Group([7]))
    assert of(1, 1).size() == 1


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda axis: pickle.loads(pickle.dumps(axis))])
def test_a_copy_is_the_same_axis(again):
    axis = MeshAxis.from_layout((3, 2), (4, 1))
    assert again(axis) is axis


def test_threads_that_make_one_axis_at_once_get_one_object():
    made, start = [], threading.Barrier(8)

    def make():
        start.wait()
        made.append(of(977, 3))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(map(id, made))) == 1


def test_an_axis_is_frozen():
    with pytest.raises(AttributeError, match="frozen"):
        of(4, 1).layout = Layout(2, 1)
    with pytest.raises(AttributeError, match="frozen"):
        del of(4, 1).layout


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [([0, 1, 2, 3], of(4, 1)), ([9, 1, 5], of(3, 4)), ([8, 9, 12, 13], MeshAxis.from_layout((2, 2), (4, 1)))],
)
def test_a_group_gives_its_ranks_counted_from_the_first(ranks, expected):
    assert of(Group(ranks)) is expected


def test_pytorch_layouts_are_read_by_their_shape_and_stride():
    dims = [SimpleNamespace(shape=(2,), stride=(4,)), SimpleNamespace(shape=(4,), stride=(1,))]
    assert MeshAxis(dims[1]) is of(4, 1)
    assert MeshAxis(SimpleNamespace(axes=tuple(dims))) is of(8, 1)


def test_the_duck_hook_is_asked_once_and_remembered_weakly():
    calls = []

    class Mock:
        def __mesh_axis__(self):
            calls.append(self)
            return of(4, 2)

    mock = Mock()
    gc.collect()  # groups of other tests may be waiting to be forgotten
    before = len(_axis_of)
    assert of(mock) is of(mock) is of(4, 2)
    assert len(calls) == 1
    calls.clear()
    del mock
    gc.collect()
    assert len(_axis_of) == before


def test_a_group_that_cannot_be_remembered_still_has_an_axis():
    class Unhashable(Group):
        __hash__ = None

    assert of(Unhashable([0, 2])) is of(2, 2)


@pytest.mark.parametrize(
    ("make", "error", "code", "words"),
    [
        (lambda: of(4), TypeError, "SW905", r"MeshAxis.of\(4\) needs the stride"),
        (lambda: of(Group([0, 1]), 1), TypeError, "SW905", "takes a stride with a size only"),
        (lambda: of("tp"), TypeError, "SW905", "got 'tp' of type str"),
        (lambda: of(None), TypeError, "SW905", "got None of type NoneType"),
        (lambda: of(True), TypeError, "SW905", "got True of type bool"),
        (lambda: of(0, 1), ValueError, "SW903", "must be positive, got size 0"),
        (lambda: of(4, "x"), TypeError, "SW903", "are ints, got 'x'"),
        (lambda: of(Group([])), ValueError, "SW903", "has no ranks"),
        (
            lambda: of(Group([0, 1, 3], "odd")),
            ValueError,
            "SW903",
            r"the ranks \[0, 1, 3\] of odd are not evenly spaced",
        ),
        (lambda: MeshAxis(3), TypeError, "SW905", "takes a layout, got 3 of type int"),
        (lambda: of(SimpleNamespace(__mesh_axis__=lambda: 3)), TypeError, "SW905", "returned 3 of type int"),
        (lambda: flatten_axes(()), ValueError, "SW903", "needs at least one axis"),
        (lambda: flatten_axes((of(4, 1), of(2, 2))), ValueError, "SW901", "are not orthogonal"),
    ],
)
def test_what_is_no_axis_is_refused_by_name(make, error, code, words):
    with pytest.raises(error, match=words) as caught:
        make()
    assert isinstance(caught.value, (SpmdArgumentError, SpmdValueError))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ((of(2, 4), of(4, 1)), True),
        ((of(4, 1), of(2, 4), of(3, 8)), True),
        ((of(4, 1), of(4, 1)), False),
        ((of(4, 1), of(2, 2)), False),
        ((of(8, 1), of(2, 4)), False),
        ((of(4, 1), of(1, 1)), True),
        ((of(1, 1), of(1, 1)), True),
        ((of(2, 5), of(2, 6)), True),
        ((of(2, 5), of(2, 7)), True),
        ((of(2, 6), of(2, 7)), True),
        ((of(2, 5), of(2, 6), of(2, 7)), False),  # 5 + 6 > 7: pairs are not enough
        ((MeshAxis.from_layout((2, 2), (4, 1)), of(2, 2)), True),
    ],
)
def test_orthogonality(axes, expected):
    assert axes[0].isorthogonal(*axes[1:]) is expected
    assert axes[-1].isorthogonal(*axes[:-1]) is expected


def test_comparison_is_inclusion_of_ranks():
    tp, sub, trivial = of(4, 1), of(2, 2), of(1, 1)
    assert sub <= tp
    assert sub < tp
    assert tp >= sub
    assert tp > sub
    assert tp <= tp
    assert not tp < tp
    assert not tp <= sub
    assert trivial <= sub
    assert not of(2, 4) <= tp
    with pytest.raises(TypeError, match="not supported"):
        assert tp < 3


def test_sort_key_puts_the_outermost_axis_first():
    axes = [of(4, 1), of(1, 1), of(2, 16), MeshAxis.from_layout((2, 2), (8, 1)), of(2, 4)]
    assert sorted(axes, key=lambda axis: axis.sort_key) == [axes[2], axes[3], axes[4], axes[0], axes[1]]


@pytest.mark.parametrize(
    ("axes", "flat"),
    [
        ((of(4, 1),), of(4, 1)),
        ((of(4, 1), of(2, 4)), of(8, 1)),
        ((of(2, 4), of(4, 1)), of(8, 1)),
        ((of(2, 8), of(2, 1)), MeshAxis.from_layout((2, 2), (8, 1))),
        ((of(4, 1), of(1, 1)), of(4, 1)),
    ],
)
def test_flattening(axes, flat):
    assert flatten_axes(axes) is flat
