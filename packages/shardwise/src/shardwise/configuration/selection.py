"""Which codes are meant: a number (``SW113``), its beginning (``SW1``) or a name (``term-added-per-rank``)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from shardwise.diagnostics.codes import CODES

OF_THE_RUN = ("SW910", "SW911", "SW912")
"""How a run ended. No finding of the program, so nothing selects or ignores it."""


@dataclass(frozen=True)
class Selection:
    """Some codes, and the words that name them."""

    words: tuple[str, ...] = ()
    codes: frozenset[str] = frozenset()

    def __contains__(self, code: object) -> bool:
        return code in self.codes

    def __bool__(self) -> bool:
        return bool(self.words)

    def __or__(self, other: Selection) -> Selection:
        return Selection((*self.words, *other.words), self.codes | other.codes)


def selection(words: Iterable[str]) -> Selection:
    """The codes that the words name, of which each may be several with commas between. ValueError for one that names
    none.
    """
    pieces = tuple(piece.strip() for word in words for piece in word.split(",") if piece.strip())
    return Selection(pieces, frozenset(code for piece in pieces for code in codes_named(piece)))


def codes_named(word: str) -> tuple[str, ...]:
    """The codes that ``SW113``, ``SW1`` or ``term-added-per-rank`` means. ValueError if there is none."""
    upper = word.upper()
    named = [code.code for code in CODES.values() if code.name == word.lower()]
    if upper.startswith("SW"):
        named = [code for code in CODES if code.startswith(upper)]
    if named and set(named) <= set(OF_THE_RUN):
        raise ValueError(f"{named[0]} says how the run ended: it can neither be selected nor ignored")
    if not named:
        raise ValueError(f"{word!r} is no code{nearest(word)}")
    return tuple(code for code in named if code not in OF_THE_RUN)


def nearest(word: str) -> str:
    """``; did you mean SW113 (term-added-per-rank)?`` if there is one like it, else where the codes are listed."""
    names = {code.name: code.code for code in CODES.values()}
    by_name = [name for name in names if len(word) > 3 and name.startswith(f"{word.lower()}-")]
    by_name += difflib.get_close_matches(word.lower(), names, n=1)
    letters = "".join(filter(str.isalnum, word.lower()))
    by_name += [name for name in names if len(letters) > 3 and letters in name.replace("-", "")]
    digits = "".join(letter for letter in word if letter.isdigit())
    stems = [f"SW{digits[:length]}" for length in (3, 2)] if digits else []
    by_number = [code for stem in stems for code in CODES if code.startswith(stem) and len(stem) > 3]
    for code in (*(names[name] for name in by_name), *by_number):
        return f"; did you mean {code} ({CODES[code].name})?"
    return "; shardwise explain lists them"
