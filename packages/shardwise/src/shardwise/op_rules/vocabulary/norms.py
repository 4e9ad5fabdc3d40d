"""What keeps or finishes a pending norm, by name of the operator; and of which order a norm is.

A pending norm is the root of the sum of the squares of the ranks' values. Its square is a pending sum, and the norm of
several pending norms is the pending norm of all that they were taken of; nothing else combines them. This is how a
gradient norm is written by hand over parameters that are split.
"""

from __future__ import annotations

from typing import Final

from ..schema import Arguments

SQUARES: Final = frozenset(["square", "pow"])
JOINS: Final = frozenset(["stack", "cat"])
NORMS: Final = frozenset(["norm", "linalg.vector_norm", "linalg.norm", "frobenius_norm"])


def is_euclidean(order: object) -> bool:
    """The root of a sum of squares, as an order of a norm says it."""
    return order is None or order == "fro" or (isinstance(order, (int, float)) and order == 2)


def euclidean_only(static: Arguments) -> str | None:
    """The guard of norms: one of another order than 2 does not go on where one of order 2 is pending."""
    order = static.get("p", static.get("ord"))
    return None if is_euclidean(order) else "of pending norms only a norm of order 2 is a norm of all"
