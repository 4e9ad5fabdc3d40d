"""The README and the pages of docs/ are run, and the output that they show is what comes out."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import shardwise

from .documents import ROOT, blocks, differences, of_any_build, pages
from .test_imports import LEVELS

MADE = ("codes", "SW", "coverage.md")
"""What the names of pages begin with that docs/hooks.py makes."""
PAGES = [path.relative_to(ROOT).as_posix() for path in pages()]


@pytest.mark.slow_but_one_in(8)
@pytest.mark.processes
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_happens(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = [(f"{page}:{d.block.line}", d.real) for d in differences((ROOT / page).read_text(), tmp_path)]
    assert found == [], "run: python packages/shardwise/tests/documents.py --write"


def test_only_the_kernels_of_a_torch_with_cuda_are_left_out_of_what_pages_show():
    shown = "  kernels    aten::mm: AutocastCUDA, CPU, {}Meta\n  help       a device, CUDA\n"
    assert of_any_build(shown.format("CUDA, ")) == of_any_build(shown.format("")) == shown.format("")


@pytest.mark.parametrize("page", PAGES)
def test_links_between_files_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
        assert (path.parent / target).exists() or Path(target).parts[-1].startswith(MADE), target


def test_the_readme_has_a_program_of_fifteen_lines_that_is_found_wrong():
    program, console = blocks((ROOT / "README.md").read_text())[:2]
    assert len(program.text.splitlines()) == 15
    assert console.text.startswith("$ shardwise check mlp.py\nSW113 ")


def test_the_architecture_page_has_the_arrows_that_imports_are_held_to():
    line = next(
        line for line in (ROOT / "docs/architecture.md").read_text().splitlines() if line.startswith("diagnostics < ")
    )
    assert [set(re.findall(r"\w+", level)) for level in line.split("<")] == list(LEVELS)


@pytest.mark.parametrize(
    ("page", "real"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", ["1\n"]),
        ("```python\nprint(1)\n```\n\n```text\n1\n```\n", []),
        ("```python\nx = 3\n```\n\nand\n\n```python\nprint(x)\n```\n\n```text\n\n```\n", ["3\n"]),
        (
            "```console\n$ shardwise --version\nshardwise 9\n```\n",
            [f"$ shardwise --version\nshardwise {shardwise.__version__}\n"],
        ),
        ("<!-- not run: it would not end -->\n```python\nwhile True: pass\n```\n", []),
    ],
    ids=["wrong output", "right output", "shared names", "wrong console", "not run"],
)
def test_a_planted_untruth_is_found(page, real, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [difference.real for difference in differences(page, tmp_path)] == real


def test_a_block_that_fails_fails_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ZeroDivisionError):
        list(differences("```python\n1 / 0\n```\n", tmp_path))
    with pytest.raises(ValueError, match=r"missing\.py does not exist"):
        list(differences("```console\n$ shardwise check missing.py\n```\n", tmp_path))


def _without_a_head(text):
    """The first rows of tables that no line of dashes makes one of."""
    lines = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
    starts = [
        at for at, line in enumerate(lines) if line.startswith("|") and not (at and lines[at - 1].startswith("|"))
    ]
    return [lines[at] for at in starts if not re.fullmatch(r"\|[ :|-]+", "".join(lines[at + 1 : at + 2]))]


@pytest.mark.parametrize("page", PAGES)
def test_a_table_is_one(page):
    assert _without_a_head((ROOT / page).read_text()) == []


def test_a_table_that_an_empty_line_parts_is_found():
    assert _without_a_head("| a | b |\n| --- | :-: |\n| 1 | 2 |\n\n| 3 | 4 |\n| 5 | 6 |\n") == ["| 3 | 4 |"]


@pytest.fixture
def hooks():
    pytest.importorskip("mkdocs.config", reason="the site is built where the extra docs is installed")
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs/hooks.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.slow
def test_language_models_find_every_page_of_the_navigation(tmp_path, hooks):
    from mkdocs.config import load_config
    from mkdocs.structure.files import get_files

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path))
    config.plugins._current_plugin = "hooks"  # as while a site is built
    files = hooks.on_files(get_files(config), config)
    text = files.get_file_from_path("llms.txt").content_string
    pages = re.findall(r"^- \[[^\]]+\]\(([^)]+)\.html\)", text, re.MULTILINE)
    listed = re.findall(r"- (\S+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert pages == listed
    assert "`" * 3 not in text


def test_on_a_phone_a_drawing_is_laid_out_anew_or_does_not_become_too_small(hooks):
    """A drawing of the zoo has a narrow twin, a wide figure a least width, and a small one nothing."""
    mkdocs = pytest.importorskip("mkdocs.config", reason="the site is built where the extra docs is installed")
    from mkdocs.structure.files import File, Files

    config = mkdocs.load_config(str(ROOT / "mkdocs.yml"))
    config.plugins._current_plugin = "hooks"
    drawn = {"zoo/a.svg": 700, "zoo/a-narrow.svg": 374, "figures/wide.svg": 800, "figures/small.svg": 500}
    files = Files([File.generated(config, name, content=f'<svg width="{wide}">') for name, wide in drawn.items()])

    def shown(page, name):
        return hooks._DRAWING.sub(lambda image: hooks.fitted(image, page, files), f'<img alt="it" src="{name}" />')

    assert 'srcset="a-narrow.svg"' in shown("zoo/a.md", "a.svg")
    assert shown("guide/b.md", "../figures/wide.svg").endswith('style="--least: 600px" />')
    assert shown("index.md", "figures/small.svg") == '<img alt="it" src="figures/small.svg" />'
    assert shown("index.md", "https://elsewhere/wide.svg") == '<img alt="it" src="https://elsewhere/wide.svg" />'


def test_no_line_breaks_behind_the_hyphens_of_an_option_in_a_command_of_the_zoo(hooks):
    code = '<h2 id="to-run-it">To run it</h2><pre><code>torchrun<span class="w"> </span>--dp<span class="w"> </span>2'
    shown = hooks.on_page_content(code, page=None, files=None)
    assert '<span class="option">--dp</span>' in shown
    assert 'class="w"' in shown
    assert re.sub(r"<[^>]+>", "", shown) == re.sub(r"<[^>]+>", "", code)
    elsewhere = code.replace("to-run-it", "other")
    assert hooks.on_page_content(elsewhere, page=None, files=None) == elsewhere


def test_figures_of_parts_beside_each_other_have_these_below_each_other_on_a_phone():
    from shardwise_devtools.figures import FIGURES, FOLDED_ON_PHONES, figure, narrow_figures

    assert set(FOLDED_ON_PHONES) < set(FIGURES)
    for name, drawn in narrow_figures().items():
        whole = figure(name.removeprefix("figures/").removesuffix("-narrow.svg"))
        wide, narrow = (float(re.search(r' width="([\d.]+)"', one)[1]) for one in (whole, drawn))
        assert narrow < 400 < wide, name


def test_the_site_colours_the_parts_of_a_finding_and_nothing_else(hooks):
    console = (ROOT / "README.md").read_text().partition("```console\n")[2].partition("```")[0]
    lines = console.replace("-->", "--&gt;").splitlines()[1:]
    page = "\n".join(f'<span class="go">{line}</span>' for line in lines)
    coloured = re.findall(
        r'<span class="(?!go)(\w+)">([^<]*)</span>', hooks.on_page_content(page, page=None, files=None)
    )
    assert re.sub(r"<[^>]+>", "", hooks.on_page_content(page, page=None, files=None)) == "\n".join(lines)
    parts = {kind: [text.strip() for other, text in coloured if other == kind] for kind, _ in coloured}
    assert parts["finding"] == ["SW113 term-added-per-rank"]
    assert parts["caret"] == ["^^^^^^^^ added once per rank"]
    assert set(map(frozenset, parts["span"])) == {frozenset("-")}
    assert len(parts["span"]) == 2
    assert parts["note"] == ["= note"]
    assert parts["help"] == ["= help"] * 3 + ["= more"]
    assert hooks.on_page_content("<p>SW113 a: b</p>", page=None, files=None) == "<p>SW113 a: b</p>"
