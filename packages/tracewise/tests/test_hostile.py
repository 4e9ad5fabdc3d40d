"""A log that attacks: nothing of it becomes a tag, an attribute, a script or a link, or is written elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from .golden import golden
from .hostile import ATTACKS, attacked
from .pages import pages_of
from .reports import report_of

NAMES = ["basic-break", "basic-recompile", "basic-fail", "basic-dynamic", "export-draft", "export-kernels"]


def tree(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("with_names", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", NAMES)
def test_an_attacking_log_stays_text(tmp_path, name, with_names):
    before = tree(tmp_path)
    out, answers = report_of(attacked(golden(name), with_names=with_names), tmp_path / "x")
    assert answers.run.health.records >= 5
    assert [(page.path.name, page.complaints) for page in pages_of(out) if page.complaints] == []
    outside = {path for path in tree(tmp_path) - before if not path.is_relative_to(out)}
    assert outside == {tmp_path / "x", tmp_path / "x" / "trace", tmp_path / "x" / "trace" / "a.log"}
    assert all(set(path.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-") for path in tree(out))


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("attack", range(len(ATTACKS)))
def test_each_attack_at_each_place(tmp_path, attack):
    out, _ = report_of(attacked(golden("basic-fail"), with_names=True, attack=attack), tmp_path)
    assert [(page.path.name, page.complaints) for page in pages_of(out) if page.complaints] == []


def test_attacks_reach_the_pages_they_are_aimed_at(tmp_path):
    out, _ = report_of(attacked(golden("basic-fail"), with_names=True), tmp_path)
    text = "".join(path.read_text() for path in out.rglob("*.html"))
    for attack in ("<img src=x onerror=window.hurt=1>", "{{ 7 * 7 }}", "</script><script>"):
        assert attack.replace("<", "&lt;").replace(">", "&gt;") in text
    assert "\u202e" not in text
