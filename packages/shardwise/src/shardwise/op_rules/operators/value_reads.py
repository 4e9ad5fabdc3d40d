"""Which operators hand a tensor's value to Python? What they return has no type, so the reading is where it is checked.

Operators whose result's *shape* depends on values (``nonzero``, ``unique``) give a typed tensor and are pure functions.
"""

from __future__ import annotations

from ..schema import Kind, OpRule

_ONE = "item tolist numpy is_nonzero __bool__ __nonzero__ __int__ __long__ __float__ __index__ __complex__ __array__"
_MORE = "__contains__ _local_scalar_dense _assert_async _functional_assert_async apply_"
_TWO = "equal allclose"
_ASKED = "_is_all_true _is_any_true"
"""Asked of a tensor right before Python decides, as ``torch.distributions`` does when it validates its arguments."""

RULES = (
    *(
        OpRule(op, "input", kind=Kind.VALUE, law="hands the value to Python")
        for op in f"{_ONE} {_MORE} {_ASKED}".split()
    ),
    *(OpRule(op, "input other", kind=Kind.VALUE, law="hands a comparison to Python") for op in _TWO.split()),
)
