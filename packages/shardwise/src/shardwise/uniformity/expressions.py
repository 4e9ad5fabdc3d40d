"""By which expression did a rank compute a value? Plain data, no torch: what ranks tell of what should be equal."""

from __future__ import annotations

from dataclasses import dataclass

from shardwise.diagnostics.source_location import SourceLocation

UNKNOWN = ""
"""The digest of a value of which nobody knows how it came about: it is taken to be the same on all ranks."""

TAKEN_BY = "taken by "
"""How the operator of a value begins that a library takes for equal, whatever its type is."""


@dataclass(frozen=True, slots=True)
class TakenTensor:
    """A tensor that a call takes: how the source names it, and the digest of the expression that made it."""

    name: str
    digest: str = UNKNOWN


@dataclass(frozen=True, slots=True)
class EqualValue:
    """A value that is typed R or I along some axes, or that is used as such.

    ``key``       where it is computed: the program's own frames, by file and line, in one text.
    ``groups``    the axes along which it is equal by its type: name, and the ranks that share it.
    ``op``        the operator; ``declared`` for a value that has been given its type on somebody's word, ``taken
                  by`` for one that a library takes for equal.
    ``plain``     the arguments that are no tensors, as text.
    ``state``     a digest of the generator's state before, for a draw of random numbers.
    ``value``     a digest of the values, where they are real and have been declared.
    ``digest``    of the whole expression, operands included.
    ``made``      False for a use that makes nothing: a loss that backward starts from.
    ``blind``     where this rank had read a number of values that inert collectives have not made, as ``key``; from
                  there on its plain arguments are not told.
    """

    key: str
    location: SourceLocation | None
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    op: str
    plain: str = ""
    state: str = ""
    value: str = ""
    operands: tuple[TakenTensor, ...] = ()
    digest: str = UNKNOWN
    made: bool = True
    blind: str = ""

    @property
    def own(self) -> tuple[str, str, str, str]:
        """What is this call's own doing, and not that of its operands."""
        return self.op, self.plain, self.state, self.value
