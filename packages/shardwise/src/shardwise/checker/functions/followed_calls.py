"""Does an autograd function communicate when it runs? If what it names sounds like it, the lines that it reaches tell.

forward:   with gathered(weight): ...            a function of Python, which is looked into
gathered:  if not is_sharded: return nullcontext()    what stands below is not reached

So forward and backward run once more, with the same values, and the lines that they reach are read, and those of what
they call: what these name and no function of Python explains may communicate, if it sounds like it.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from shardwise.oracle.function_runs import FunctionRuns, NotRun
from shardwise.oracle.simulated_ranks.identity import names_of_distributed

from ..state.session import CheckSession
from .examination import examined
from .named_calls import sounds_of_others
from .probed_functions import call_key

if TYPE_CHECKING:
    from _typeshed import TraceFunction

_NOT_READ = sys.stdlib_module_names | {"torch", "shardwise"}
"""Modules whose lines nobody has to read."""


def runs_without_others(session: CheckSession, cls: type[torch.autograd.Function], args: Sequence[object]) -> bool:
    """True if neither forward nor backward has called anything that may communicate, with arguments like these."""
    if dist.group.WORLD is None or torch.compiler.is_compiling():
        return False
    key = ("followed", *call_key(cls, args))
    if key not in session.probed:
        session.probed[key] = False  # if it calls itself while it is looked at
        with examined(session):
            session.probed[key] = _followed(cls, args)
    return bool(session.probed[key])


def _followed(cls: type[torch.autograd.Function], args: Sequence[object]) -> bool:
    rank = dist.get_rank()
    try:
        runs = FunctionRuns(cls, args, cls.apply, rank)
        operands = [x for at in runs.operands if isinstance(x := args[at], torch.Tensor)]
        runs.dtype = None
        runs.differentiated = [at for at, x in zip(runs.operands, operands, strict=True) if x.requires_grad]
        for _ in range(2):  # modules that it imports are loaded in the first
            with _reading() as read:
                seen = runs.observe(
                    lambda rank: operands, lambda rank, results: _ones(results), ranks=(rank,), alone=True
                )
    except NotRun:
        return False
    methods = {"forward", "backward"} if runs.differentiated else {"forward"}
    if seen.issued or seen.asked or read.distributed or not methods <= read.functions:
        return False
    return not sounds_of_others(read.names, read.functions)


def _ones(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.ones_like(x) for x in results]


@dataclass
class _Read:
    """What has run: ``names`` in the lines of the program, ``functions`` of Python that were called, and whether any
    was one of torch's for what is ``distributed``.
    """

    names: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    distributed: bool = False

    def entered(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        """For ``sys.settrace``."""
        module = str(frame.f_globals.get("__name__", ""))
        self.functions.add(frame.f_code.co_name)
        self.distributed |= module.startswith("torch.") and "distributed" in module
        if module.partition(".")[0] in _NOT_READ:
            return None
        names, held = _names_by_line(frame.f_code), frame.f_code.co_freevars
        if held:
            self.names |= names_of_distributed(frame.f_locals.get(name) for name in held)

        def line(frame: FrameType, event: str, arg: object) -> TraceFunction:
            here = names.get(frame.f_lineno, frozenset())
            self.names |= here | names_of_distributed(map(frame.f_globals.get, here))
            return line

        return line


@functools.lru_cache(maxsize=256)
def _names_by_line(code: CodeType) -> dict[int, frozenset[str]]:
    """The global names, attributes and imports that each line of ``code`` mentions."""
    named: dict[int, frozenset[str]] = {}
    for one in dis.get_instructions(code):
        line = None if one.positions is None else one.positions.lineno
        if line is not None and one.opcode in dis.hasname:
            named[line] = named.get(line, frozenset()) | {str(one.argval)}
    return named


@contextlib.contextmanager
def _reading() -> Iterator[_Read]:
    """What runs on this thread inside the block; a debugger does not see it."""
    read, before = _Read(), sys.gettrace()
    sys.settrace(read.entered)
    try:
        yield read
    finally:
        sys.settrace(before)
