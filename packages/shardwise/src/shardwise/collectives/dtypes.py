"""In which dtype does a collective run, and which dtype comes back? The table of ``op_dtype`` and ``out_dtype``.

With input dtype D: none given, both are D; only ``op_dtype``, both are it; both given, as given; only ``out_dtype``, an
op that shrinks its operand runs in D and casts after, any other runs in the narrower of the two, because casting
commutes with moving numbers about and fewer bytes travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown

BACKWARD_KEYS = ("op_dtype", "out_dtype", "async_op", "backward_options")

Options = tuple[tuple[str, Any], ...]
"""Backward options as a hashable tuple of pairs."""


def resolve_dtypes(
    given: torch.dtype, op_dtype: torch.dtype | None, out_dtype: torch.dtype | None, *, shrinks: bool
) -> tuple[torch.dtype, torch.dtype]:
    """The dtype that the op runs in and the dtype of its result."""
    for name, dtype in (("op_dtype", op_dtype), ("out_dtype", out_dtype)):
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise SpmdArgumentError(f"{name} must be a torch.dtype, got {shown(dtype)}", code="SW208")
    if op_dtype is not None:
        return op_dtype, out_dtype if out_dtype is not None else op_dtype
    if out_dtype is None:
        return given, given
    return given if shrinks or given.itemsize <= out_dtype.itemsize else out_dtype, out_dtype


def freeze_options(options: object) -> Options | None:
    """Backward options in hashable form. SW208 for keys that no collective knows."""
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise SpmdArgumentError(
            f"backward_options must be a dict, got {shown(options)}",
            code="SW208",
            help=('backward_options={"op_dtype": torch.float32}',),
        )
    unknown = [key for key in options if key not in BACKWARD_KEYS]
    if unknown:
        raise SpmdValueError(
            f"unknown backward_options {', '.join(map(repr, unknown))}; valid are {', '.join(BACKWARD_KEYS)}",
            code="SW208",
        )
    return tuple((key, freeze_options(value) if key == "backward_options" else value) for key, value in options.items())


def is_narrow(dtype: torch.dtype) -> bool:
    """True for floating dtypes (and complex ones by their parts) under 32 bits, in which long sums lose digits."""
    return (dtype.is_floating_point or dtype.is_complex) and torch.finfo(dtype).bits < 32


def demand_reduction_dtype(op: str, dtype: torch.dtype) -> SpmdValueError:
    """The refusal of a call whose backward would add up gradients in a narrow dtype that nobody chose."""
    return SpmdValueError(
        f"the backward of this {op} adds up gradients over ranks, and {_name(dtype)} is too narrow to do so unasked: "
        'backward_options["op_dtype"] must be given',
        code="SW209",
        help=(
            'backward_options={"op_dtype": torch.float32} to add in float32, as FSDP does for gathered parameters: '
            'all_gather(shard, "dp", src=S(0), dst=R, op_dtype=torch.bfloat16, '
            'backward_options={"op_dtype": torch.float32})',
            f'backward_options={{"op_dtype": {dtype}}} to add in {_name(dtype)} knowingly',
        ),
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
