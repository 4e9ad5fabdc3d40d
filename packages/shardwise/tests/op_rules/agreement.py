"""Do the rules say what the numbers say of a call, and all of it? The one question of the tables of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .global_ruleset import differences

torch.set_num_threads(1)


def randn(*shapes: Sequence[int], dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Tensors of these shapes, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(tuple(shape), dtype=dtype, generator=generator) for shape in shapes]


def assert_agreement(
    fn: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    *,
    sizes: Sequence[int] = (2, 3),
    at_least: int = 2,
    except_for: Sequence[str] = ("SW110",),
) -> None:
    """The rules claim what is true of ``fn`` and nothing else, for at least so many placements of the operands.

    ``except_for``  refusals of something true. SW110: a pending term may be added to a product over shards, but not in
                    the program without shardings, where the product merely varies.
    """
    report = differences(fn, *tensors, sizes=sizes)
    assert not report.wrong, "\n".join(map(str, report.wrong))
    missing = [each for each in report.missing if not each.reason.startswith(tuple(except_for))]
    assert not missing, "\n".join(map(str, missing))
    assert report.covered >= at_least, f"only {report.covered} placements are covered"
