"""A TensorSharding behaves like a tuple and is a leaf of pytrees."""

import copy
import pickle

import pytest
from torch.utils import _pytree as pytree

from shardwise.diagnostics.errors import SpmdArgumentError
from shardwise.types.tensor_sharding import TensorSharding, normalize_dim_sharding

SHARDING = TensorSharding("a", None, ("b", "c"))


def test_it_reads_like_a_tuple():
    assert SHARDING[0] == "a"
    assert SHARDING[1:] == (None, ("b", "c"))
    assert list(SHARDING) == ["a", None, ("b", "c")]
    assert len(SHARDING) == 3
    assert SHARDING.index(None) == 1
    assert SHARDING.count("a") == 1
    assert "a" in SHARDING
    assert repr(SHARDING) == "TensorSharding('a', None, ('b', 'c'))"


def test_it_equals_itself_and_the_plain_tuple():
    assert TensorSharding("a", None, ("b", "c")) == SHARDING
    assert SHARDING == ("a", None, ("b", "c"))
    assert SHARDING == ("a", None, ("b", "c"))
    assert TensorSharding("a") != SHARDING
    assert SHARDING != ["a", None, ("b", "c")]
    assert hash(SHARDING) == hash(("a", None, ("b", "c")))


def test_it_is_added_to_tuples_and_its_like():
    one = TensorSharding("a")
    for total in (one + ("b",), one + TensorSharding("b"), ("a",) + TensorSharding("b")):
        assert isinstance(total, TensorSharding)
        assert total == ("a", "b")


@pytest.mark.parametrize("add", [lambda s: s + ["b"], lambda s: ["b"] + s, lambda s: s + 1])
def test_it_is_added_to_nothing_else(add):
    with pytest.raises(NotImplementedError, match=r"not to (list|int)"):
        add(SHARDING)


def test_a_pytree_treats_it_as_a_leaf():
    assert not isinstance(SHARDING, tuple)
    assert pytree.tree_leaves({"x": [SHARDING]}) == [SHARDING]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_is_equal(again):
    assert again(SHARDING) == SHARDING


@pytest.mark.parametrize(("entry", "names"), [(None, ()), ("a", ("a",)), (("a", "b"), ("a", "b")), (["a"], ["a"])])
def test_an_entry_is_a_sequence_of_names(entry, names):
    assert normalize_dim_sharding(entry) == names


def test_another_entry_is_refused():
    with pytest.raises(SpmdArgumentError, match="got 3 of type int") as caught:
        normalize_dim_sharding(3)
    assert caught.value.code == "SW905"
