"""A partition spec is a tuple that keeps what was written."""

import copy
import pickle

import pytest

from shardwise.types.placement import S
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry, partition_spec_get_shard


def test_a_spec_is_a_tuple_in_every_respect_but_its_print():
    spec = PartitionSpec("a", None, ("b", "c"))
    assert spec == ("a", None, ("b", "c"))
    assert hash(spec) == hash(("a", None, ("b", "c")))
    assert spec[0] == "a"
    assert list(spec) == ["a", None, ("b", "c")]
    assert len(spec) == 3
    assert type(spec[:2]) is tuple
    assert PartitionSpec(("a", "b")) != PartitionSpec(("b", "a"))
    assert PartitionSpec(()) == ((),)


@pytest.mark.parametrize(
    ("spec", "printed"),
    [
        (PartitionSpec(), "PartitionSpec()"),
        (PartitionSpec("tp", None), "PartitionSpec('tp', None)"),
        (PartitionSpec(("dp", "tp"), "ep"), "PartitionSpec(('dp', 'tp'), 'ep')"),
        (PartitionSpec(("dp",)), "PartitionSpec(('dp',))"),
    ],
)
def test_a_spec_prints_as_it_is_written(spec, printed):
    assert repr(spec) == printed
    assert eval(printed) == spec


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda spec: pickle.loads(pickle.dumps(spec))])
def test_a_copy_is_an_equal_spec(again):
    spec = PartitionSpec("a", ("b", "c"))
    assert again(spec) == spec
    assert type(again(spec)) is PartitionSpec


@pytest.mark.parametrize("entry", [None, "a", ("a", "b")])
def test_entries_and_tuples_of_axes_convert_into_each_other(entry):
    assert make_entry(entry_axes(entry)) == entry


@pytest.mark.parametrize(
    ("axes", "left"),
    [
        ((), ("a", ("b", "c"))),
        (("b",), ("a", "c")),
        (("a", "b"), (None, "c")),
        (("a", "b", "c"), None),
        (("z",), ("a", ("b", "c"))),
    ],
)
def test_axes_can_be_taken_out(axes, left):
    assert PartitionSpec("a", ("b", "c")).without(axes) == left


def test_the_shard_of_an_axis_is_the_dim_of_its_entry():
    spec = PartitionSpec(None, ("b", "c"))
    assert partition_spec_get_shard(spec, "c") == S(1)
    assert partition_spec_get_shard(spec, "a") is None
    assert partition_spec_get_shard(None, "a") is None
