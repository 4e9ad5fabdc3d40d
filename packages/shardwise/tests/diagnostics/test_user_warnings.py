"""Are warnings of torch shown where the program has made the call, and no others elsewhere than before?"""

from __future__ import annotations

import warnings

import pytest

import shardwise.host.user_warnings as own_module
from shardwise.host.attribute_patch import patched
from shardwise.host.user_warnings import warnings_at_own_lines

LIBRARY = "/somewhere/library.py"


@pytest.mark.parametrize(
    ("given", "shown"), [(own_module.__file__, __file__), (LIBRARY, LIBRARY)], ids=["ours", "theirs"]
)
def test_a_warning_in_a_frame_of_ours_is_shown_at_the_call(given, shown):
    seen: list[tuple[str, int]] = []

    def show(message, category, filename, lineno, file=None, line=None):
        seen.append((filename, lineno))

    with patched(warnings, "showwarning", show), warnings_at_own_lines():
        warnings.warn_explicit("a read with a gradient", UserWarning, given, 7)
    ((file, line),) = seen
    assert file == shown
    assert (line == 7) is (shown == LIBRARY)


def test_a_program_that_shows_warnings_in_its_own_way_keeps_it():
    seen: list[str] = []
    with warnings_at_own_lines(), patched(warnings, "showwarning", lambda message, *rest: seen.append(str(message))):
        warnings.warn_explicit("text", UserWarning, own_module.__file__, 7)
    assert seen == ["text"]
