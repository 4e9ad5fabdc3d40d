"""What do the others send in an exchange where nobody else is? What they would if they held what this rank holds.

The fake backend gives back what was sent. A rank that asks others for rows by their numbers would then be asked for
rows that lie elsewhere; here it is asked for those that it asks itself for. Where other ranks run beside this one, what
they send is delivered, and nothing is imagined.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist

from shardwise.host.attribute_patch import patched
from shardwise.interop.running.recording import has_values
from shardwise.interop.torch_compat import no_torch_function

Lengths = Sequence[int] | torch.Tensor


@contextlib.contextmanager
def exchanges_imagined() -> Iterator[None]:
    """Inside the block whole numbers that ``dist.all_to_all_single`` brings are those that ranks like this one send."""
    with patched(dist, "all_to_all_single", _as_from_peers(dist.all_to_all_single)):
        yield


def _as_from_peers(original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def all_to_all_single(
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Lengths | None = None,
        input_split_sizes: Lengths | None = None,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
    ) -> object:
        input, input_split_sizes = rows_for_none(output, input, output_split_sizes, input_split_sizes)
        work = original(output, input, output_split_sizes, input_split_sizes, group, async_op)
        with no_torch_function(), torch.no_grad():
            size, me = dist.get_world_size(group), dist.get_rank(group)
            # A number for each rank is a count: as many arrive as were sent.
            if me >= 0 and input.numel() > size and _are_numbers(input) and _are_numbers(output):
                own = torch.split(input, _lengths(input_split_sizes, len(input), size))[me]
                _repeat(own, torch.split(output, _lengths(output_split_sizes, len(output), size)))
        return work

    return all_to_all_single


def rows_for_none(
    output: torch.Tensor, input: torch.Tensor, output_sizes: Lengths | None, input_sizes: Lengths | None
) -> tuple[torch.Tensor, Lengths | None]:
    """What is to be handed in, with its lengths: rows of zeros for none, for which the fake backend brings no rows."""
    return (torch.zeros_like(output), output_sizes) if output.numel() and not input.numel() else (input, input_sizes)


def _are_numbers(x: torch.Tensor) -> bool:
    """Whole numbers, which may be numbers of rows, and not true or false."""
    return has_values(x) and not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool)


def _lengths(given: Lengths | None, total: int, size: int) -> list[int]:
    return [int(length) for length in given] if given is not None and len(given) else [total // size] * size


def _repeat(own: torch.Tensor, places: Sequence[torch.Tensor]) -> None:
    """Fill ``places`` with ``own``, as often as it takes."""
    for place in places if len(own) else ():
        rows = list(itertools.islice(itertools.cycle(range(len(own))), len(place)))
        place.copy_(own[torch.tensor(rows, dtype=torch.long, device=own.device)])
