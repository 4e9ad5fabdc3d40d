"""What is made while the site is built: pages of codes, coverage, the API and the zoo, and the front page's program."""

import json
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.explain import page
from shardwise_devtools import api_reference, figures, zoo_pages
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
_INLINE = re.compile(r"(?<!<pre>)(?<!</span>)<code>[^<]*</code>")
_OPTION = re.compile(r"((?<![\w-])--?[a-z][\w-]*)")
"""Options of commands in running text: a browser would break a line behind their hyphens."""
_COMMANDS = re.compile(r'(?<=id="to-run-it">).*', re.DOTALL)
"""The commands of a page of the zoo, which go on below where a phone has no room beside."""
_DRAWING = re.compile(r'<img [^>]*src="(?P<name>[^":]+)\.svg"[^>]*/>')
WHOLE_ON_A_PHONE = 640
"""Pixels of a drawing that can be read when it is as narrow as a phone."""
HEADLINE = re.compile("<!-- headline:begin -->\n(.*?)<!-- headline:end -->", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages of codes, coverage, the API and the zoo, drawings for phones, and ``llms.txt``."""
    rows = [f"| [{code.code}](codes/{code.code}.md) | {code.name} | {code.summary} |" for code in CODES.values()]
    table = ["# Diagnostic codes", "", "| code | name | what is wrong |", "| --- | --- | --- |", *rows, ""]
    files.append(File.generated(config, "codes.md", content="\n".join(table)))
    for code in CODES:
        files.append(File.generated(config, f"codes/{code}.md", content=page(code).text))
    files.append(File.generated(config, "coverage.md", content=render(json.loads(COVERAGE.read_text()))))
    made = {**api_reference.pages(), **zoo_pages.pages(), **zoo_pages.pictures(), **figures.narrow_figures()}
    for name, text in made.items():
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


def on_page_content(html: str, page: Page, files: Files, **context: object) -> str:
    """Mark the parts of what commands print, which have colours on a terminal, and fit drawings to phones."""
    html = _OUTPUT.sub(lambda line: marked(line[0]), html)
    html = _INLINE.sub(lambda code: _OPTION.sub(r'<span class="option">\1</span>', code[0]), html)
    html = _COMMANDS.sub(lambda rest: _OPTION.sub(r'<span class="option">\1</span>', rest[0]), html)
    return _DRAWING.sub(lambda image: fitted(image, page.file.src_uri, files), html)


def fitted(image: re.Match[str], page: str, files: Files) -> str:
    """The image with the drawing that is laid out for phones where there is one; one that would be too small to read
    there has the least width that the style sheet lets it have, and scrolls in its own box."""
    name = posixpath.normpath(posixpath.join(posixpath.dirname(page), image["name"]))
    file = files.get_file_from_path(f"{name}-narrow.svg")
    if file is not None:
        source = f'<source media="(max-width: 44.9375em)" srcset="{image["name"]}-narrow.svg" />'
        return f"<picture>{source}{image[0]}</picture>"
    drawn = files.get_file_from_path(f"{name}.svg")
    wide = re.search(r'width="([\d.]+)"', drawn.content_string) if drawn is not None else None
    if wide is None or float(wide[1]) <= WHOLE_ON_A_PHONE:
        return image[0]
    return f'{image[0][:-2].rstrip()} style="--least: {0.75 * float(wide[1]):.0f}px" />'


def marked(line: str) -> str:
    """A line of output in HTML with a ``<span>`` around each part that has a colour.

    Example:
        >>> marked("   = note: it counts 4 times")
        '   <span class="note">= note</span>: it counts 4 times'
    """
    for pattern, kind in _PARTS:
        line = pattern.sub(lambda found, kind=kind: f'<span class="{kind}">{found[0]}</span>', line, count=1)
    return line
