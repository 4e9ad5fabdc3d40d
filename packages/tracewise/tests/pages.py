"""What the HTML of a report is made of, for tests: tags, links, labels, headings, and what a browser would run."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

VOID = {"meta", "link", "input", "br", "rect"}
ALLOWED = {
    "a", "article", "body", "br", "button", "canvas", "caption", "code", "dd", "details", "dialog", "div", "dl", "dt",
    "footer", "form", "h1", "h2", "h3", "head", "header", "html", "iframe", "input", "kbd", "label", "li",
    "link", "main", "meta", "nav", "ol", "p", "pre", "rect", "script", "section", "span", "strong", "summary", "svg",
    "table", "tbody",
    "td", "th", "thead", "title", "tr", "ul",
}  # fmt: skip
CONTROLS = {"input", "button", "select", "iframe", "canvas", "a", "summary"}


@dataclass
class PageFacts(HTMLParser):
    """One page, read by a parser that is not ours."""

    path: Path
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text_of: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[int] = []
        self.unclosed: list[str] = []
        self.feed(self.path.read_bytes().decode("utf-8"))
        self.close()
        self.unclosed += [self.tags[index][0] for index in self._open]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self.text_of.append("")
        if tag not in VOID:
            self._open.append(len(self.tags) - 1)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if self._open and self.tags[self._open[-1]][0] == tag:
            self._open.pop()
        else:
            self.unclosed.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        for index in self._open:
            self.text_of[index] += data

    @property
    def complaints(self) -> list[str]:
        """What must not be in a page of ours, whatever the log holds."""
        found = [f"tag {tag}" for tag, _ in self.tags if tag not in ALLOWED] + [f"unclosed {t}" for t in self.unclosed]
        for tag, attributes in self.tags:
            found += [f"{name} on {tag}" for name in attributes if name.startswith("on") or name == "style"]
            if tag == "script" and not attributes.get("src") and attributes.get("type") != "application/json":
                found.append("inline script")
            for name in ("href", "src", "action"):
                if name in attributes and not self.is_harmless(attributes[name] or ""):
                    found.append(f"{tag} {name}={attributes[name]}")
        return found + self.dead_links + self.unnamed

    @staticmethod
    def is_harmless(url: str) -> bool:
        return url.startswith(("https://", "http://")) or (":" not in url and not url.startswith("/"))

    @property
    def dead_links(self) -> list[str]:
        """Links to files of the report that are not there."""
        found = []
        for tag, attributes in self.tags:
            for name in ("href", "src"):
                url = (attributes.get(name) or "").partition("#")[0]
                if url and not url.startswith("http") and not (self.path.parent / unquote(url)).is_file():
                    found.append(f"{tag} leads to {url}, which is not there")
        return found

    @property
    def unnamed(self) -> list[str]:
        """What a reader by ear cannot make sense of."""
        labelled = {attributes.get("for") for tag, attributes in self.tags if tag == "label"}
        found = []
        for (tag, attributes), text in zip(self.tags, self.text_of, strict=True):
            has_name = text.strip() or attributes.get("aria-label") or attributes.get("title")
            if tag in CONTROLS and not has_name and attributes.get("id") not in labelled:
                found.append(f"{tag} without a name")
            if tag == "th" and not attributes.get("scope"):
                found.append("th without scope")
        tags = [tag for tag, _ in self.tags]
        # A title may stand in a drawing, too.
        headings = [*(t for t in tags if t in ("h1", "main")), *(t for t in tags[: tags.index("body")] if t == "title")]
        found += [f"{headings.count(tag)} × {tag}" for tag in ("h1", "main", "title") if headings.count(tag) != 1]
        ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        return found + [f"id {name} twice" for name in set(ids) if ids.count(name) > 1]


def pages_of(folder: Path) -> list[PageFacts]:
    return [PageFacts(path) for path in sorted(folder.rglob("*.html"))]
