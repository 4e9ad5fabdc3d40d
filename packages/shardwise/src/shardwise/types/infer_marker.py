"""How does ``local_map`` say that the operands' types are to be taken as they come? With ``Infer``."""

from __future__ import annotations

from typing import Final


class _Infer:
    """The one object ``Infer``; a copy or an unpickled one is the same object."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Infer"

    def __reduce__(self) -> str:
        return "Infer"


Infer: Final = _Infer()
"""As the bare value of ``in_types``: believe the types that the operands have.

Example:
    >>> @local_map(in_types=Infer, out_types={"tp": R})
    ... def total(x):
    ...     return all_reduce(x, "tp", src=P, dst=R)
    >>> print(typeof(total(assert_type(torch.ones(4), {"tp": P}))))
    f32[4] {dp: R, tp: R}
"""
