"""The tag on a tensor: it travels with the tensor through copies and files, and shares what aliases share."""

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

from shardwise.interop.tensors.tagging import (
    ATTRIBUTE,
    Origin,
    Tag,
    alias,
    set_tag,
    set_type,
    tag_of,
    type_of,
    typed_shape,
)
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import UNKNOWN, I, P, R, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import EMPTY_TYPE, UNKNOWN_TYPE, UNTYPED, TensorType, constant_type

DP, CP, TP = MeshAxis.of(2, 8), MeshAxis.of(2, 4), MeshAxis.of(4, 1)
NESTED = MeshAxis.from_layout((2, 2), (8, 1))
of = TensorType.of

TYPES = {
    "empty": UNTYPED,
    "local": of({DP: R, CP: I, TP: P}),
    "sharded": of({DP: V, CP: V, TP: V}, PartitionSpec((DP, CP), TP)),
    "nested axis": of({NESTED: V}, PartitionSpec(None, NESTED)),
    "constant": constant_type((DP, TP)),
    "zero": constant_type((DP, TP), zero=True),
    "memory": EMPTY_TYPE,
    "rejected": UNKNOWN_TYPE,
}


def through_pickle(x):
    return pickle.loads(pickle.dumps(x))


def through_a_file(x):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": through_pickle,
    "checkpoint": through_a_file,
    "state dict": lambda x: through_a_file({"x": x})["x"],
}


@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("type", TYPES.values(), ids=TYPES)
def test_a_copy_has_the_type(type, again):
    check_copy(torch.arange(6.0).reshape(2, 3), type, again)


@pytest.mark.parametrize("name", sorted(COPIES.keys() - {"deepcopy"}))
@pytest.mark.parametrize("type", TYPES.values(), ids=TYPES)
def test_a_copy_of_a_parameter_has_the_type(type, name):
    check_copy(nn.Parameter(torch.ones(2, 3)), type, COPIES[name])


def check_copy(x, type, again):
    set_type(x, type, Origin(None, "asserted here"))
    y = again(x)
    assert type_of(y) is type
    assert torch.equal(y, x)
    assert y.__class__ is x.__class__
    assert type_of(x) is type


@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
def test_retyping_a_copy_leaves_the_original(again):
    x = torch.ones(2, 3)
    set_type(x, of({TP: V}, PartitionSpec(TP, None)))
    y = again(x)
    set_type(y, of({DP: R}))
    assert type_of(x) is of({TP: V}, PartitionSpec(TP, None))
    assert type_of(y) is of({DP: R})


def test_an_unknown_axis_is_left_out_of_a_file():
    x = torch.ones(2)
    set_type(x, of({DP: UNKNOWN, TP: R}))
    assert type_of(through_a_file(x)) is of({TP: R})


@pytest.mark.slow
@pytest.mark.processes
def test_a_checkpoint_loads_without_shardwise(tmp_path):
    x = torch.ones(2, 3)
    set_type(x, TYPES["sharded"], Origin(None, "asserted here"))
    torch.save({"x": x}, tmp_path / "checkpoint.pt")
    program = (
        "import sys, torch; x = torch.load(sys.argv[1], weights_only=True)['x']; "
        "print(x.tolist(), [name for name in sys.modules if name.startswith('shardwise')])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "checkpoint.pt"], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]] []\n"


def test_a_module_is_pickled_with_its_types():
    module = nn.Linear(3, 2)
    set_type(module.weight, TYPES["local"])
    assert type_of(through_pickle(module).weight) is TYPES["local"]


def test_a_deep_copy_of_a_parameter_is_untyped():
    """A known limit: PyTorch makes the new parameter from the bare data and takes no attribute along."""
    x = nn.Parameter(torch.ones(2))
    set_type(x, TYPES["local"])
    assert type_of(copy.deepcopy(x)) is UNTYPED


def test_a_deep_copy_keeps_provenance_and_leaves_the_aliases():
    x = torch.ones(4)
    origin = Origin(None, "asserted here")
    set_type(x, of({TP: R}), origin)
    view = x[:2]
    alias(view, x, of({TP: R}), origin)
    y = copy.deepcopy(x)
    assert tag_of(y).origin_of(TP) is origin
    set_type(view, of({TP: V}))
    assert type_of(x) is of({TP: V})
    assert type_of(y) is of({TP: R})


def test_a_shallow_copy_shares_memory_and_so_types():
    x = torch.ones(4)
    set_type(x, of({TP: R}))
    alias(x[:2], x, of({TP: R}), None)
    y = copy.copy(x)
    set_type(y, of({TP: V}))
    assert y.data_ptr() == x.data_ptr()
    assert type_of(x) is of({TP: V})


def test_a_local_type_written_through_a_view_is_every_aliass():
    base = torch.ones(4, 4)
    set_type(base, of({TP: R, DP: R}))
    row, column = base[0], base[:, 0]
    for view in (row, column):
        alias(view, base, of({TP: R, DP: R}), None)
    set_type(row, of({TP: V, DP: R}))
    assert type_of(base) is type_of(column) is of({TP: V, DP: R})
    set_type(base, of({TP: V, DP: I}))
    assert type_of(row) is of({TP: V, DP: I})


def test_views_have_their_own_specs():
    base = torch.ones(4, 4)
    set_type(base, of({TP: V}, PartitionSpec(TP, None)))
    view = base.t()
    alias(view, base, of({TP: V}, PartitionSpec(None, TP)), None)
    assert type_of(base).spec == PartitionSpec(TP, None)
    assert type_of(view).spec == PartitionSpec(None, TP)
    set_type(view, of({TP: R}))
    assert type_of(base) is of({TP: R})


def test_objects_without_a_tag_are_untyped():
    for thing in (torch.ones(1), 3, None, object()):
        assert tag_of(thing) is None
        assert type_of(thing) is UNTYPED


def test_a_tag_can_be_taken_away():
    x = torch.ones(1)
    set_type(x, of({TP: R}))
    set_tag(x, None)
    assert type_of(x) is UNTYPED
    assert ATTRIBUTE not in x.__dict__
    set_tag(x, None)


def test_provenance_is_kept_per_axis():
    both, one, other = Origin(None, "both"), Origin(None, "one"), Origin(None, "other")
    assert Tag(of({DP: R, TP: V}), both).origin_of(TP) is both
    tag = Tag(of({DP: R, TP: V}), (one, other))
    assert (tag.origin_of(DP), tag.origin_of(TP), tag.origin_of(CP)) == (one, other, None)
    assert Tag(of({DP: R})).origin_of(DP) is None


def test_a_typed_shape_needs_no_torch_function():
    class Refuse(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise AssertionError(f"{func} was called")

    x = torch.ones(2, 3, dtype=torch.int8)
    set_type(x, of({TP: R}))
    with Refuse():
        assert str(typed_shape(x)) == f"i8[2, 3] {{{TP!r}: R}}"
        assert str(typed_shape(x, UNTYPED)) == "i8[2, 3]"
