"""The pages that are made while the site is built: one per diagnostic code, their list, and the coverage report."""

import json
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.explain import page
from shardwise_devtools.sweep.coverage_page import render

COVERAGE = Path(__file__).parent / "coverage.json"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add ``codes.md``, ``codes/SW###.md`` and ``coverage.md``."""
    rows = [f"| [{code.code}](codes/{code.code}.md) | {code.name} | {code.summary} |" for code in CODES.values()]
    table = ["# Diagnostic codes", "", "| code | name | what is wrong |", "| --- | --- | --- |", *rows, ""]
    files.append(File.generated(config, "codes.md", content="\n".join(table)))
    for code in CODES:
        files.append(File.generated(config, f"codes/{code}.md", content=page(code).text))
    files.append(File.generated(config, "coverage.md", content=render(json.loads(COVERAGE.read_text()))))
    return files
