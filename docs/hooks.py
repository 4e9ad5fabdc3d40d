"""Which pages are made while the site is built? One per diagnostic code, and their list, from `shardwise explain`."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.explain import page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add ``codes.md`` and ``codes/SW###.md``."""
    rows = [f"| [{code.code}](codes/{code.code}.md) | {code.name} | {code.summary} |" for code in CODES.values()]
    table = ["# Diagnostic codes", "", "| code | name | what is wrong |", "| --- | --- | --- |", *rows, ""]
    files.append(File.generated(config, "codes.md", content="\n".join(table)))
    for code in CODES:
        files.append(File.generated(config, f"codes/{code}.md", content=page(code).text))
    return files
