"""The pages that are made while the site is built: diagnostic codes and their list, coverage, and the API reference."""

import json
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.explain import page
from shardwise_devtools import api_reference
from shardwise_devtools.sweep.coverage_page import render

COVERAGE = Path(__file__).parent / "coverage.json"


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
