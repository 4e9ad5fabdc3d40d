"""What is made while the site is built: the pages of codes, coverage and the API, and the front page's program."""

import json
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.explain import page
from shardwise_devtools import api_reference
from shardwise_devtools.sweep.coverage_page import render

COVERAGE = Path(__file__).parent / "coverage.json"
README = Path(__file__).parents[1] / "README.md"
HEADLINE = re.compile("<!-- headline:begin -->\n(.*?)<!-- headline:end -->", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add ``codes.md``, ``codes/SW###.md``, ``coverage.md`` and ``reference/*.md``."""
    rows = [f"| [{code.code}](codes/{code.code}.md) | {code.name} | {code.summary} |" for code in CODES.values()]
    table = ["# Diagnostic codes", "", "| code | name | what is wrong |", "| --- | --- | --- |", *rows, ""]
    files.append(File.generated(config, "codes.md", content="\n".join(table)))
    for code in CODES:
        files.append(File.generated(config, f"codes/{code}.md", content=page(code).text))
    files.append(File.generated(config, "coverage.md", content=render(json.loads(COVERAGE.read_text()))))
    for name, text in api_reference.pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **context: object) -> str:
    """Put the README's program and its finding where a page asks for them."""
    found = HEADLINE.search(README.read_text("utf-8"))
    assert found is not None, "README.md has no headline"
    return markdown.replace("<!-- headline -->", found[1])
