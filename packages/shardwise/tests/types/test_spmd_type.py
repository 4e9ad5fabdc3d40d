"""An SpmdType keeps what was written and refuses what contradicts itself."""

import pytest

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.types.placement import P, PerMeshAxisLocalSpmdType, R, S, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.spmd_type import SpmdType


@pytest.mark.parametrize(
    ("types", "spec"),
    [
        ({}, None),
        ({"tp": R, "dp": S(-1)}, None),
        ({"tp": V}, PartitionSpec("tp", None)),
        ({"dp": R}, PartitionSpec("tp", None)),
        ({"tp": V}, PartitionSpec(("dp", "tp"))),
    ],
)
def test_keys_and_entries_stay_as_written(types, spec):
    made = SpmdType(types, spec)
    assert made.local_type == types
    assert made.partition_spec == spec
    assert made == SpmdType(dict(types), spec)
    assert repr(made) == f"SpmdType(local_type={types!r}, partition_spec={spec!r})"


def test_an_spmd_type_can_be_changed_and_is_therefore_unhashable():
    made = SpmdType({"tp": R})
    made.partition_spec = PartitionSpec("dp")
    assert made.partition_spec == ("dp",)
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)


@pytest.mark.parametrize(
    ("types", "spec", "error", "code", "words"),
    [
        ({"tp": S(0)}, PartitionSpec("dp"), SpmdTypeError, "SW131", r"'tp' is given as S\(0\) beside an explicit"),
        ({"tp": S(0)}, PartitionSpec("tp"), SpmdTypeError, "SW131", r"'tp' is given as S\(0\) beside an explicit"),
        ({"tp": R}, PartitionSpec("tp"), SpmdTypeError, "SW131", "'tp' is given as R; an axis that shards is V"),
        ({"tp": P}, PartitionSpec(None, ("dp", "tp")), SpmdTypeError, "SW131", "'tp' is given as P"),
        ({"tp": "R"}, None, TypeError, "SW132", "on axis 'tp' must be R, I, V, P or S.*got 'R' of type str"),
        ({"tp": S}, None, TypeError, "SW132", "on axis 'tp' must be"),
        ({"tp": 0}, PartitionSpec(()), TypeError, "SW132", "got 0 of type int"),
        ({}, PartitionSpec(None, ()), ValueError, "SW132", r"dim 1 is the empty tuple \(\); .* is None"),
        (
            R,
            None,
            TypeError,
            "SW132",
            f"takes a dict from axes to types, got R of type {PerMeshAxisLocalSpmdType.__name__}",
        ),
    ],
)
def test_contradictions_are_refused(types, spec, error, code, words):
    with pytest.raises(error, match=words) as caught:
        SpmdType(types, spec)
    assert isinstance(caught.value, SpmdTypeError)
    assert caught.value.code == code
