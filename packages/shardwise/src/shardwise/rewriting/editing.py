"""A file with the edits of fixes made: expressions wrapped, replaced or rewritten, statements put in, moved, left out.

y + bias                                Wrap       y + spmd.convert(bias, "tp", src=R, dst=P)
spmd.all_gather(y, "tp", src=S(1), dst=R)  Replace    spmd.all_gather(y, "tp", src=S(0), dst=R)
largest(x)                              Rewrite    largest(x.detach())
dist.all_reduce(x, async_op=True)       Argument   dist.all_reduce(x)
optimizer.step()                        Insert     a line before it: dist.all_reduce(weight.grad, group=dp)
dist.all_reduce(y)                      Remove     no such line
dist.all_reduce(w.grad)                 Leave      the same line behind the loop
y = F.dropout(x)                        Within     the same line in a block: with spmd.synchronised_rng("tp"):

How each changes the text is in ``changes``; here they are put together.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

import libcst as cst

from shardwise.diagnostics.fix import Edit

from .changes import Change, Context, NoProgramError, changes, names_of
from .spelling import Spelling
from .statements import Source


def edited(source: str, edits: Sequence[Edit]) -> str | None:
    """``source`` with the edits, and what they need imported; None if that is no Python any more.

    None, too, for the few sources that Python reads and libcst does not (tabs after spaces in one indentation).
    """
    try:
        module = cst.parse_module(source)
        spelling = Spelling.of(module, {name for edit in edits for name in names_of(edit)})
        context = Context(Source.of(source), module, spelling)
        made = [one for number, edit in enumerate(dict.fromkeys(edits)) for one in changes(context, edit, number)]
        text = _applied(context.file.text, made).decode()
        ast.parse(text)  # as text: bytes would be read in the encoding that they declare
        return spelling.imported(text)
    except (NoProgramError, SyntaxError, cst.ParserSyntaxError):  # what is wrapped stood where only a name can stand
        return None


def _applied(text: bytes, made: Sequence[Change]) -> bytes:
    ordered = sorted(set(made))
    # Changes of one stretch of text are for a person to choose between.
    if any(first.end > second.start for first, second in itertools.pairwise(ordered)):
        raise NoProgramError
    for change in reversed(ordered):
        text = text[: change.start] + change.text.encode() + text[change.end :]
    return text
