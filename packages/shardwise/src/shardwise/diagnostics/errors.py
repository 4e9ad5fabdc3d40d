"""What is raised when a program is wrong: one family of exceptions, each carrying its finding.

``SpmdTypeError`` is a ``RuntimeError`` and not a ``TypeError`` on purpose: Python swallows a ``TypeError`` raised
inside an operator and tries the reflected one. Calls that are wrong whatever the types are also ``ValueError`` or
``TypeError``, so that both habits of ``except`` work. Whoever raises says the code, the message and the remedies;
whoever stands at the edge of the library knows the operator, the axis and the operands, and calls ``attach``.
"""

from __future__ import annotations

from collections.abc import Iterable

from .codes import CODES
from .finding import Finding
from .fix import Fix
from .respelling import Instead, argument_at, respelled
from .source import location_of_traceback, user_location
from .source_location import Operand, SourceLocation

_FALLBACK = "SW905"


def shown(value: object) -> str:
    """``repr(value)`` for a message; an object whose ``repr`` raises is told by its type."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


class SpmdTypeError(RuntimeError):
    """A violation of the typing rules.

    ``code``     the diagnostic code, ``SW101`` and so on (see ``shardwise explain``).
    ``help``     remedies, each a call that can be pasted.
    ``meant``    what the offending call may have meant instead of what it says; each is told as a remedy.
    ``said``     the argument of the call that is at fault, as it may be written there, ``S(1)``; ``beside`` its key, if
                 it is the value of a dict.
    ``axis``     the mesh axis at fault, where there is one.
    ``attached`` the finding that a boundary gave it, or None.
    ``finding``  the structured finding (location, operands, repairs): the attached one, else one made on first use from
                 the traceback; None if it was never raised.
    ``context``  the offending call with its operands, printed under the message; may be set later.
    ``note``     a remark on how the error is shown, printed before the context; may be set later.

    Example:
        >>> try:
        ...     torch.relu(assert_type(torch.ones(4), {"tp": P}))
        ... except SpmdTypeError as error:
        ...     print(error.code, error.finding.op)
        SW112 relu
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "SW905",
        help: tuple[str, ...] = (),
        meant: tuple[Instead, ...] = (),
        said: str = "",
        beside: str = "",
        axis: object = None,
        context: str | None = None,
        finding: Finding | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.help = (*help, *(one.help for one in meant))
        self.meant = tuple(meant)
        self.said, self.beside = said, beside
        self.axis = axis
        self.context = context
        self.attached = finding
        self.note = ""

    @property
    def finding(self) -> Finding | None:
        if self.attached is None and self.__traceback__ is not None:
            attach(self)
        return self.attached

    @finding.setter
    def finding(self, finding: Finding | None) -> None:
        self.attached = finding

    @property
    def message(self) -> str:
        """The message without help and context."""
        return str(self.args[0])

    def __str__(self) -> str:
        if self.attached is not None:
            lines = [str(self.attached)]
        else:
            lines = [self.message, *(f"  = help: {line}" for line in self.help)]
        if self.note:
            last = lines[-1].rpartition("\n")[2]
            indent = last[: len(last) - len(last.lstrip())] or "  "
            lines.append(f"{indent}= note: {self.note}")
        if self.context:
            lines += ["", self.context]
        return "\n".join(lines)


class SpmdValueError(SpmdTypeError, ValueError):
    """A call with an argument value that is wrong whatever the operands' types are.

    Example:
        >>> with no_typecheck():
        ...     x = torch.ones(4)
        >>> try:
        ...     get_axis_local_type(x, "tp")
        ... except SpmdValueError as error:
        ...     print(error.code, isinstance(error, ValueError))
        SW103 True
    """


class SpmdArgumentError(SpmdTypeError, TypeError):
    """A call with an argument of the wrong Python type.

    Example:
        >>> try:
        ...     assert_type(torch.ones(4), {"tp": "R"})
        ... except SpmdArgumentError as error:
        ...     print(error.code, isinstance(error, TypeError))
        SW132 True
    """


class RedistributeError(SpmdTypeError):
    """A collective on a mesh axis that is not the innermost one sharding its dim.

    Example:
        >>> issubclass(RedistributeError, SpmdTypeError)
        True
    """


class DTensorPropagationError(SpmdTypeError):
    """A global placement that cannot be expressed. The name is the reference API's; no DTensor is involved.

    Example:
        >>> issubclass(DTensorPropagationError, SpmdTypeError)
        True
    """


def attach(
    error: SpmdTypeError,
    *,
    location: SourceLocation | None = None,
    op: str = "",
    axis: str = "",
    operands: Iterable[Operand] = (),
    facts: Iterable[str] = (),
    fixes: Iterable[Fix] = (),
) -> Finding:
    """The finding of ``error``, made now unless it has one; help that fixes carry out is told with the others.

    The message's first line is the headline, further lines become facts. Without ``location`` it is the innermost call
    in the user's own code: that of the traceback if the error has left it, else the one that is running. Of a call
    of which one argument is at fault it is that argument.
    """
    if error.attached is not None:
        return error.attached
    if location is None:
        location = location_of_traceback(error.__traceback__) or user_location()
    fixes = (*respelled(location, error.meant), *fixes)
    first, *more = error.message.splitlines() or [""]
    finding = Finding(
        code=error.code if error.code in CODES else _FALLBACK,
        message=first,
        location=argument_at(location, error.said, error.beside) or location,
        op=op,
        axis=axis,
        operands=tuple(operands),
        facts=(*(line.strip() for line in more if line.strip()), *facts),
        help=tuple(dict.fromkeys((*error.help, *(fix.help for fix in fixes)))),
        fixes=fixes,
    )
    error.finding = finding
    return finding
