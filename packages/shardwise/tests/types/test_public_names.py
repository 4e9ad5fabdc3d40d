"""The door of the room: what it offers, and what it does not load."""

import copy
import pickle
import subprocess
import sys

import pytest

import shardwise.types
from shardwise.diagnostics.errors import DTensorPropagationError, RedistributeError, SpmdTypeError
from shardwise.types.infer_marker import Infer

OFFERED = [
    "R",
    "I",
    "V",
    "P",
    "Replicate",
    "Invariant",
    "Varying",
    "Partial",
    "S",
    "Shard",
    "PartitionSpec",
    "SpmdType",
    "LocalSpmdType",
    "PerMeshAxisLocalSpmdType",
    "PerMeshAxisSpmdType",
    "PerMeshAxisSpmdTypes",
    "DimSharding",
    "TensorSharding",
    "SpmdTypeError",
    "normalize_axis",
    "normalize_mesh",
    "normalize_partition_spec",
    "RedistributeError",
    "DTensorPropagationError",
    "DeviceMeshAxis",
    "PartitionSpecEntry",
    "PerMeshAxisSpmdTypesArg",
    "normalize_local_type",
    "normalize_dim_sharding",
    "to_local_type",
    "format_axis",
    "shard_types_to_partition_spec",
    "partition_spec_to_shard_types",
    "partition_spec_get_shard",
]


@pytest.mark.parametrize("name", OFFERED)
def test_the_door_offers(name):
    assert getattr(shardwise.types, name) is not None
    assert name in dir(shardwise.types)


def test_an_unknown_name_is_refused_by_name():
    with pytest.raises(AttributeError, match="no attribute 'Shart'"):
        shardwise.types.Shart  # noqa: B018


@pytest.mark.processes
def test_types_and_mesh_load_without_torch_and_without_the_checker():
    # TYPE_CHECKING is asked of the session that runs, and sessions know torch.
    program = (
        "import sys, shardwise.types as t, shardwise.mesh as m\n"
        "[getattr(room, name) for room in (t, m) for name in room.__all__ if name != 'TYPE_CHECKING']\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'torch' or 'shardwise.checker' in name])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"


def test_infer_is_one_object():
    assert repr(Infer) == "Infer"
    assert pickle.loads(pickle.dumps(Infer)) is copy.deepcopy(Infer) is copy.copy(Infer) is Infer


@pytest.mark.parametrize("error", [SpmdTypeError, RedistributeError, DTensorPropagationError])
def test_errors_are_runtime_errors_that_python_does_not_swallow(error):
    made = error("tp is odd", code="SW131", help=("convert(x)",))
    assert isinstance(made, RuntimeError)
    assert not isinstance(made, TypeError)
    assert made.args == ("tp is odd",)
    assert str(made) == "tp is odd\n  = help: convert(x)"
    made.context = "  In add(x)"
    assert str(made).endswith("\n\n  In add(x)")
