"""One page for each distinct payload: the only place of long texts. Line numbers and colours are made by the page.

This is the fast path of the report: most bytes of a log are payloads.
"""

from __future__ import annotations

from pathlib import Path

from markupsafe import escape

from tracewise.model.catalogue import language_of
from tracewise.model.entities import Record
from tracewise.model.payloads import Payloads
from tracewise.report.folder import OutputFolder
from tracewise.report.html import CONTENT_POLICY, escape_text, page_bytes
from tracewise.report.links import Links

SHOWN_BYTES = 2_000_000
COPY_BYTES = 1 << 20
HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="'
    + str(escape(CONTENT_POLICY))
    + '"><meta name="viewport" content="width=device-width"><meta name="referrer" content="no-referrer">'
    '<link rel="stylesheet" href="../../assets/text.css"><script defer src="../../assets/text.js"></script><title>'
)


class PayloadPages:
    """Writes the page of a record's payload once, whoever asks first."""

    def __init__(self, folder: OutputFolder, payloads: Payloads, links: Links) -> None:
        self._folder = folder
        self._payloads = payloads
        self._links = links
        self.written: set[str] = set()

    def write(self, record: Record) -> None:
        name = self._links.payload(record)
        if name in self.written or not record.has_payload:
            return
        self.written.add(name)
        text = self._payloads.text(record, SHOWN_BYTES + 1)
        note = ""
        if record.payload_length > SHOWN_BYTES and len(text) >= SHOWN_BYTES // 4:
            whole = name.removesuffix(".html") + ".txt"
            length = self._copy(record, whole)
            text = text[:SHOWN_BYTES]
            note = (
                f'<p class="note">Shown: the first {len(text):,} characters of {length:,} bytes. '
                f'<a href="{whole.rpartition("/")[2]}">The whole text</a></p>'
            )
        if record.is_damaged:
            note += '<p class="note">Damaged: this text is not what the program wrote, or not all of it.</p>'
        title = str(escape(record.title))
        language = language_of(record.kind, record.name, record.encoding)
        page = (
            f'{HEAD}{title}</title></head><body data-language="{language}"><main><h1>{title}</h1>{note}'
            f'<pre id="text" tabindex="0">{escape_text(text)}</pre></main></body></html>'
        )
        self._folder.write(name, page_bytes(page))

    def _copy(self, record: Record, name: str) -> int:
        """The payload as it stands, beside its page."""
        data = self._payloads.read(record)
        self._folder.write(name, data)
        return len(data)


def copy_assets(folder: OutputFolder) -> None:
    """Our style and scripts."""
    for path in sorted((Path(__file__).parent / "assets").iterdir()):
        folder.write(f"assets/{path.name}", path.read_bytes())
