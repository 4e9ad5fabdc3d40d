"""Which operator is this callable? Every spelling of an operator, mapped to the one name that the registry uses.

PyTorch spells one operator many ways: ``torch.add``, ``Tensor.add``, ``Tensor.add_``, ``+``, ``+=``, reflected ``+``,
``torch.ops.aten.add.Tensor``. The registry has one rule for all of them; this module finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..torch_compat import METHODS_OF_TORCH, OpOverload, OpOverloadPacket, qualified_name

Found = TypeVar("Found")

DUNDERS = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__rsub__": "rsub", "__mul__": "mul", "__rmul__": "mul",
    "__truediv__": "div", "__div__": "div", "__rtruediv__": "rdiv", "__rdiv__": "rdiv", "__pow__": "pow",
    "__rpow__": "rpow", "__matmul__": "matmul", "__rmatmul__": "rmatmul", "__floordiv__": "floor_divide",
    "__rfloordiv__": "rfloor_divide", "__mod__": "remainder", "__rmod__": "rremainder", "__neg__": "neg",
    "__pos__": "positive", "__abs__": "abs", "__invert__": "bitwise_not", "__and__": "bitwise_and",
    "__rand__": "bitwise_and", "__or__": "bitwise_or", "__ror__": "bitwise_or", "__xor__": "bitwise_xor",
    "__rxor__": "bitwise_xor", "__lshift__": "bitwise_left_shift", "__rlshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift", "__rrshift__": "bitwise_right_shift", "__eq__": "eq", "__ne__": "ne",
    "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__getitem__": "getitem", "__setitem__": "setitem",
}  # fmt: skip
IN_PLACE_DUNDERS = {
    "__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div", "__idiv__": "div",
    "__ipow__": "pow", "__imatmul__": "matmul", "__ifloordiv__": "floor_divide", "__imod__": "remainder",
    "__iand__": "bitwise_and", "__ior__": "bitwise_or", "__ixor__": "bitwise_xor", "__ilshift__": "bitwise_left_shift",
    "__irshift__": "bitwise_right_shift",
}  # fmt: skip

_REFLECTED = {"rsub": "sub", "rdiv": "div", "rpow": "pow", "rmatmul": "matmul", "rfloor_divide": "floor_divide"}
_PREFIXES = ("linalg", "fft", "special")


@dataclass(frozen=True, slots=True)
class OpName:
    """The names under which to look for a rule, best first, and how this spelling writes its result.

    ``candidates``  canonical names to try in order; the first is the one to show.
    ``in_place``    the first operand is overwritten with the result.
    ``prop``        a property: ``"get"`` or ``"set"``; None for a call.
    ``namespace``   of a custom operator (``torch.ops.<namespace>``); empty for PyTorch's own.
    """

    candidates: tuple[str, ...]
    in_place: bool = False
    prop: str | None = None
    namespace: str = ""

    @property
    def shown(self) -> str:
        """The name for messages."""
        name = self.candidates[0].removeprefix("torch.")
        return _REFLECTED.get(name, name)

    def find(self, lookup: Callable[[str], Found | None]) -> Found | None:
        """What ``lookup`` knows of the first candidate that it knows."""
        return next((rule for name in self.candidates if (rule := lookup(name)) is not None), None)


def op_name(func: object) -> OpName:
    """The canonical name of a callable that reached ``__torch_function__``."""
    if isinstance(func, (OpOverload, OpOverloadPacket)):
        return _from_registry(func)
    name = getattr(func, "__name__", None) or type(func).__name__
    if name in ("__get__", "__set__", "__delete__"):
        owner = getattr(getattr(func, "__self__", None), "__name__", "")
        return OpName((owner,), prop="get" if name == "__get__" else "set")
    if name in IN_PLACE_DUNDERS:
        return OpName((IN_PLACE_DUNDERS[name],), in_place=True)
    if name in DUNDERS:
        return OpName((DUNDERS[name],), in_place=name == "__setitem__")
    module = getattr(func, "__module__", None) or ""
    qualified = getattr(func, "__qualname__", name)
    in_place = _is_in_place(name)
    names = _spellings(name)
    if module.startswith("torch.masked"):
        return OpName((f"masked.{name}",))
    if qualified.startswith(METHODS_OF_TORCH):
        names = (f"torch.{name}", *names)
    elif not module.startswith("torch") and module and not hasattr(func, "__objclass__"):
        return OpName((f"{module}.{qualified}",), namespace=module)
    return OpName(names, in_place)


def _spellings(name: str) -> tuple[str, ...]:
    """``linalg_norm`` as ``linalg.norm``, ``add_`` as ``add_`` then ``add``."""
    head, _, tail = name.partition("_")
    if head in _PREFIXES and tail:
        name = f"{head}.{tail}"
    return (name, name.rstrip("_")) if _is_in_place(name) else (name,)


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_", "share_memory_")


def _from_registry(func: object) -> OpName:
    """``torch.ops.<namespace>.<name>[.<overload>]``."""
    qualified = qualified_name(func)
    namespace, _, name = qualified.replace("::", ".").partition(".")
    name = name.split(".")[0]
    if namespace in ("aten", "prims"):
        if name in IN_PLACE_DUNDERS:
            return OpName((IN_PLACE_DUNDERS[name],), in_place=True)
        aten = DUNDERS.get(name) or _ATEN.get(name, name)
        return OpName(_spellings(aten), _is_in_place(aten))
    return OpName((f"{namespace}.{name}",), namespace=namespace)


_ATEN = {
    "_softmax": "softmax", "_log_softmax": "log_softmax", "_to_copy": "to", "_unsafe_view": "view", "t": "t",
    "slice": "narrow", "where": "torch.where", "embedding": "torch.embedding",
}  # fmt: skip
