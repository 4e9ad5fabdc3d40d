"""The exceptions of ``diagnostics.errors``, under the name by which the rest of the package knows them."""

from shardwise.diagnostics.errors import (
    DTensorPropagationError,
    RedistributeError,
    SpmdArgumentError,
    SpmdTypeError,
    SpmdValueError,
    shown,
)

__all__ = [
    "DTensorPropagationError",
    "RedistributeError",
    "SpmdArgumentError",
    "SpmdTypeError",
    "SpmdValueError",
    "shown",
]
