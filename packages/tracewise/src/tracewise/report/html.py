"""How values become HTML: templates that escape everything, the fast path for long texts, and numbers in words.

Only ``Markup`` is written as it stands, and only this module and the templates make it.
"""

from __future__ import annotations

import codecs
import datetime
import re
from functools import cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tracewise.read.json_text import to_json

# From disk, 'self' does not cover files in every browser, so files are named by their scheme.
CONTENT_POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self' file:; script-src 'self' file:; "
    "frame-src 'self' file:; base-uri 'none'; form-action 'none'"
)
SURROGATE = re.compile("[\ud800-\udfff]")
# Characters that reorder text on a line: a path or code could show another text than it is.
REORDERING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text without lone surrogates; what reorders a line is shown as its number."""
    text = SURROGATE.sub("\ufffd", text)
    return REORDERING.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)


def escape_text(text: str) -> str:
    """Escapes for the content of an element, and only there: quotes stay."""
    text = visible(text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\0", "\ufffd")


def json_script(value: Any) -> Markup:
    """JSON for the inside of a script element: nothing in it can end the element."""
    text = to_json(value).decode().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def http_url(url: object) -> str:
    """The URL if it may be a link: http or https with a host. Else an empty text."""
    return url if isinstance(url, str) and re.fullmatch(r"https?://[\w.-]+(?::\d+)?(?:/[^\s\"'<>`]*)?", url) else ""


def host_of(url: str) -> str:
    return url.split("/")[2] if "//" in url else ""


def duration(us: float | None) -> str:
    """Microseconds in the unit that reads best."""
    if us is None:
        return "—"
    if us >= 60e6:
        return f"{int(us // 60e6)} min {us % 60e6 / 1e6:.0f} s"
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    return f"{us / 1e3:.1f} ms" if us >= 1e3 else f"{us:.0f} µs"


def size(count: int | None) -> str:
    """Bytes in the unit that reads best."""
    if count is None:
        return "—"
    if count >= 1e6:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e3:.1f} kB" if count >= 1e3 else f"{count} B"


def clock(us: int, offset_us: int) -> str:
    """A time as the log's own clock shows it."""
    if not us:
        return "unknown"
    try:
        moment = datetime.datetime.fromtimestamp((us + offset_us) / 1e6, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return "unknown"
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 file``, ``2 files``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _finalize(value: Any) -> Any:
    """What an expression in a template becomes before it is escaped."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else visible(str(value))


@cache
def environment() -> Environment:
    """The templates. Autoescape is on for all of them, and an unknown name is an error."""
    made = Environment(
        loader=PackageLoader("tracewise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
        auto_reload=False,
    )
    made.filters.update(duration=duration, size=size, json_script=json_script, http_url=http_url, host=host_of)
    made.globals.update(count=count, clock=clock, policy=CONTENT_POLICY)
    return made


def _replacement(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError), "only used for writing"
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("tracewise", cast(Any, _replacement))


def page_bytes(text: str) -> bytes:
    """A page as it is written: UTF-8, with U+FFFD for what UTF-8 cannot say."""
    return text.encode("utf-8", "tracewise")
