"""Operators of ``torch.ops``: their classes, names and parameters, and the lists of them that torch keeps."""

from __future__ import annotations

from typing import Any

import torch

from .registry import constant, declare, private

OpOverload: Any = constant(
    "torch._ops.OpOverload",
    purpose="``torch.ops.<namespace>.<name>.<overload>``, told from other callables",
    lost="operators called as torch.ops",
)
OpOverloadPacket: Any = constant(
    "torch._ops.OpOverloadPacket",
    purpose="``torch.ops.<namespace>.<name>``, told from other callables",
    lost="operators called as torch.ops",
)
HigherOrderOperator: Any = constant(
    "torch._ops.HigherOrderOperator",
    purpose="``cond``, ``scan`` and their like, told from other callables",
    lost="operators that take functions",
)
parse_to: Any = constant(
    "torch._C._nn._parse_to",
    purpose="what ``nn.Module.to`` makes of its arguments; a function mode sees it as this object",
    lost="nn.Module.to in a checked program",
)
functional_collectives: Any = constant(
    "torch.ops._c10d_functional",
    purpose="collectives that torch.compile can trace, which return tensors that wait at their first use; the public "
    "wrappers branch on the group's form and warn, the operators take the group's name",
    lost="collectives with async_op and under torch.compile",
)
declare(
    "torch._higher_order_ops.associative_scan",
    "torch._higher_order_ops.map",
    "torch._higher_order_ops.scan",
    purpose="operators that take functions; their rules name them as their source",
    lost="loops as operators",
    tier=2,
)
MODULE_OF_FACTORIES = "torch.utils._device"
"""Where torch's own mode for ``with torch.device(...)`` calls the functions that make tensors out of nothing."""
FUNCTIONAL_NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd")
"""The namespaces of ``torch.ops`` that the functional collectives are in."""
METHODS_OF_TORCH = "_VariableFunctions"
"""The class whose methods the functions in ``torch`` are that C++ makes."""
WAITS = ("wait_tensor", "_wrap_tensor_autograd")
"""The functional operators that wait for a collective or wrap what will."""


@private(
    "torch._C._jit_get_all_schemas",
    lost="the lists that op rules are made with (make rules)",
    tier=2,
)
def aten_overloads() -> dict[str, list[object]]:
    """Every operator of ``torch.ops.aten`` with its overloads, by name."""
    schemas = torch._C._jit_get_all_schemas()
    names = {schema.name.removeprefix("aten::") for schema in schemas if schema.name.startswith("aten::")}
    packets = {name: getattr(torch.ops.aten, name) for name in sorted(names)}
    return {name: [getattr(packet, overload) for overload in packet.overloads()] for name, packet in packets.items()}


DISPATCH_KEYS = (
    *("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"),
    *("AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA", "CPU", "CUDA", "Meta"),
)
"""Where torch may have a kernel of its own for an operator, from what is tried first of all backends to the devices."""


@private(
    "torch._C._dispatch_has_kernel_for_dispatch_key",
    lost="the dispatch keys on the pages of shardwise rules",
    tier=2,
)
def dispatch_keys(name: str) -> list[str]:
    """Those of ``DISPATCH_KEYS`` under which ``aten::linear``, say, has a kernel; none for one of scripts alone."""
    try:
        return [key for key in DISPATCH_KEYS if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)]
    except RuntimeError:
        return []


def schema_of(overload: Any) -> Any:
    """The schema of one overload: its arguments and results, with their types and what they share memory with."""
    return overload._schema


@private(
    "torch._ops.OpOverload:_schema",
    lost="arguments by name of operators called as torch.ops",
)
def operator_parameters(func: object) -> tuple[str, ...]:
    """The parameters of an operator of ``torch.ops``, by its schema; empty for any other callable."""
    if isinstance(func, OpOverloadPacket):
        func = getattr(func, func.overloads()[0])
    schema = getattr(func, "_schema", None)
    return () if schema is None else tuple(argument.name for argument in schema.arguments)


@private("torch._ops.OpOverloadPacket:_qualified_op_name", lost="operators called as torch.ops without an overload")
def qualified_name(func: object) -> str:
    """``aten::add.Tensor`` or ``aten::add`` for an operator of ``torch.ops``."""
    return str(func.name() if isinstance(func, OpOverload) else getattr(func, "_qualified_op_name", func))


@private("torch._ops.OpOverload:_schema", lost="the comparison of ranks")
def schema_name(func: Any) -> str:
    """The name of an overload without its namespace, as ``allreduce_``."""
    return str(func._schema.name.partition("::")[2])


@private(
    "torch.utils._device._device_constructors",
    lost="programs that ask for a device that is not there",
)
def factories() -> frozenset[object]:
    """The functions that make a tensor out of nothing and take a ``device``; torch has no public list."""
    from torch.utils._device import _device_constructors

    return frozenset(_device_constructors())
