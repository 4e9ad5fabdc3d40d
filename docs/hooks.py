"""What is made while the site is built: pages of codes, coverage, the API and the zoo, and the front page's program."""

import json
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.explain import page
from shardwise_devtools import api_reference, zoo_pages
from shardwise_devtools.sweep.coverage_page import render

COVERAGE = Path(__file__).parent / "coverage.json"
README = Path(__file__).parents[1] / "README.md"
_OUTPUT = re.compile(r'(?<=<span class="go">)[^<]+(?=</span>)')
_PARTS = (
    (re.compile(r"^(?:SW\d{3} [\w-]+|error)(?=: )"), "finding"),
    (re.compile(r"(?<=\| ) *\^+.*"), "caret"),
    (re.compile(r"(?<=\| ) *-{2,}$|(?<=\| ) *-{2,}(?= )"), "span"),
    (re.compile(r"^ *\d* \|| +--&gt;"), "gutter"),
    (re.compile(r"(?<=^   )= (?:help|more)(?=: )"), "help"),
    (re.compile(r"(?<=^   )= note(?=: )"), "note"),
)
"""What stands in a line of printed output, and the class of the style sheet that has its colour."""
HEADLINE = re.compile("<!-- headline:begin -->\n(.*?)<!-- headline:end -->", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add ``codes.md``, ``codes/SW###.md``, ``coverage.md``, ``reference/*.md``, ``zoo/*`` and ``llms.txt``."""
    rows = [f"| [{code.code}](codes/{code.code}.md) | {code.name} | {code.summary} |" for code in CODES.values()]
    table = ["# Diagnostic codes", "", "| code | name | what is wrong |", "| --- | --- | --- |", *rows, ""]
    files.append(File.generated(config, "codes.md", content="\n".join(table)))
    for code in CODES:
        files.append(File.generated(config, f"codes/{code}.md", content=page(code).text))
    files.append(File.generated(config, "coverage.md", content=render(json.loads(COVERAGE.read_text()))))
    for name, text in {**api_reference.pages(), **zoo_pages.pages(), **zoo_pages.pictures()}.items():
        files.append(File.generated(config, name, content=text))
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    files.append(File.generated(config, "llms.txt", content=llms_txt(config, pages)))
    return files


def llms_txt(config: MkDocsConfig, pages: dict[str, str]) -> str:
    """The site for language models: what it is about, and every page of the navigation with its first sentence."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for part in config.nav or []:
        for heading, entries in part.items() if isinstance(part, dict) else [("Start", [part])]:
            lines += [f"## {heading}", ""]
            for name in entries if isinstance(entries, list) else [entries]:
                title, first = _beginning(pages[name])
                lines.append(f"- [{title}]({name.removesuffix('.md')}.html)" + (f": {first}" if first else ""))
            lines.append("")
    return "\n".join(lines)


def _beginning(page: str) -> tuple[str, str]:
    """The title of a page, and the first sentence below it as plain text."""
    title, _, rest = re.sub(r"^```.*?^```|<!--.*?-->", "", page, flags=re.DOTALL | re.MULTILINE).strip().partition("\n")
    paragraphs = (" ".join(one.split()) for one in rest.split("\n\n") if re.match(r"\s*[\w`[*]", one))
    sentence = re.split(r"(?<=[.?!:])\s", next(paragraphs, ""), maxsplit=1)[0]
    return title.lstrip("# ").strip(), re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence.replace("**", ""))


def on_page_markdown(markdown: str, **context: object) -> str:
    """Put the README's program and its finding, and links to the zoo's pages, where a page asks for them."""
    found = HEADLINE.search(README.read_text("utf-8"))
    assert found is not None, "README.md has no headline"
    return markdown.replace("<!-- headline -->", found[1]).replace("<!-- zoo -->", zoo_pages.links("../zoo"))


def on_page_content(html: str, **context: object) -> str:
    """Mark the parts of what commands print, which have colours on a terminal."""
    return _OUTPUT.sub(lambda line: marked(line[0]), html)


def marked(line: str) -> str:
    """A line of output in HTML with a ``<span>`` around each part that has a colour.

    Example:
        >>> marked("   = note: it counts 4 times")
        '   <span class="note">= note</span>: it counts 4 times'
    """
    for pattern, kind in _PARTS:
        line = pattern.sub(lambda found, kind=kind: f'<span class="{kind}">{found[0]}</span>', line, count=1)
    return line
