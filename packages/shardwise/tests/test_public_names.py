"""Every listed public name can be had, and the compatibility modules have what the API lists for them."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

MODULES = [
    "shardwise",
    *(f"shardwise.{name}" for name in ("types", "rules", "runtime", "checker", "rulecheck", "train", "testing")),
]

PROMISED = {
    "shardwise": (
        "R I V P Replicate Invariant Varying Partial S Shard PartitionSpec SpmdType LocalSpmdType "
        "PerMeshAxisLocalSpmdType PerMeshAxisSpmdType PerMeshAxisSpmdTypes DimSharding TensorSharding SpmdTypeError "
        "normalize_axis normalize_mesh normalize_partition_spec MeshAxis set_current_mesh current_mesh "
        "current_mesh_names current_mesh_all_names reinterpret_mesh assert_type assert_type_like assert_local_type "
        "assert_local_type_like merge_types mutate_type reinterpret_no_grad get_local_type get_axis_local_type "
        "maybe_get_axis_local_type has_local_type get_partition_spec local local_map Infer no_typecheck "
        "register_no_typecheck trace traceback_filtering is_type_checking TYPE_CHECKING register_autograd_function "
        "register_local_autograd_function register_local_backward_hook register_decomposition rules all_reduce "
        "all_gather reduce_scatter all_to_all redistribute unshard convert reinterpret shard invariant_to_replicate "
        "Scalar set_dist dtensor_placement_to_spmd_type spmd_type_to_dtensor_placement spmd_redistribute"
    ),
    "shardwise.types": (
        "RedistributeError DTensorPropagationError DeviceMeshAxis PartitionSpecEntry PerMeshAxisSpmdTypesArg "
        "normalize_local_type normalize_dim_sharding to_local_type format_axis shard_types_to_partition_spec "
        "partition_spec_to_shard_types partition_spec_get_shard"
    ),
    "shardwise.checker": "typecheck SpmdTypeMode is_type_checking local_map no_typecheck",
    "shardwise.rules": (
        "NdimWithSpmdType einsum all_reduce all_gather reduce_scatter all_to_all reinterpret convert ignore output "
        "run_typecheck bind_forward_args hook_shape hook_kwargs"
    ),
    "shardwise.rulecheck": "rulecheck RuleCheckError RuleCheckReport",
    "shardwise.runtime": "assert_type get_local_type get_partition_spec mutate_type is_type_checking",
}


@pytest.mark.parametrize("name", MODULES)
def test_every_listed_name_can_be_had(name):
    module = importlib.import_module(name)
    missing = [one for one in module.__all__ if not hasattr(module, one)]
    assert missing == []


@pytest.mark.parametrize("name", MODULES)
def test_no_listed_name_is_hidden_by_a_module_of_the_same_name(name):
    """Importing ``package.name`` makes the module an attribute of the package, in the place of what is listed."""
    module = importlib.import_module(name)
    modules = {one.name for one in pkgutil.iter_modules(getattr(module, "__path__", []))}
    assert modules & set(module.__all__) <= {"rules"}, "rules is a module of its own"


@pytest.mark.parametrize("name", PROMISED)
def test_every_promised_name_is_there(name):
    module = importlib.import_module(name)
    assert [one for one in PROMISED[name].split() if not hasattr(module, one)] == []


@pytest.mark.parametrize("name", MODULES)
def test_a_door_does_not_invent_names(name):
    with pytest.raises(AttributeError, match="no_such_name"):
        importlib.import_module(name).no_such_name  # noqa: B018


@pytest.mark.slow_but_one_in(3)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("module", "loads"), [("shardwise", False), ("shardwise.rules", False), ("shardwise.checker", True)]
)
def test_only_the_checker_loads_the_engine(module, loads):
    code = f"import sys, {module}; print('shardwise.checker.mode' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    assert found == str(loads)
