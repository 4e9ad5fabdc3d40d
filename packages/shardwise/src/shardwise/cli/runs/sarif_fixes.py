"""What the fixes of findings change, for SARIF: as ``--fix`` would write them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from shardwise.diagnostics.fix import Fix


def sarif_edits(fix: Fix) -> Iterable[tuple[str, str, str]]:
    """Path, text before and text after, of each file; nothing without the library that changes source."""
    if importlib.util.find_spec("libcst") is None:
        return []
    from .fix_search import edits_of

    return [(str(edit.path), edit.before, edit.after) for edit in edits_of([fix]) or ()]
