"""Writes a report: assets, a page a question, a compilation and a distinct payload, and data for machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tracewise.find.answers import Answers, problem_json
from tracewise.model.entities import Compilation, Span
from tracewise.model.ids import CompileId
from tracewise.model.payloads import Payloads
from tracewise.read.json_text import to_json
from tracewise.report.compilation_page import Neighbours, page_values
from tracewise.report.folder import OutputFolder, new_folder
from tracewise.report.frame_tree import unit_label
from tracewise.report.html import environment, page_bytes
from tracewise.report.links import Links
from tracewise.report.pages import PAGES, Context
from tracewise.report.payload_pages import PayloadPages, copy_assets
from tracewise.report.provenance_page import provenance_pages
from tracewise.report.search import search_index
from tracewise.report.timeline import perfetto_trace, timeline_columns
from tracewise.tables.rows import compilation_rows, span_rows
from tracewise.tables.schema import TABLES

Progress = Callable[[int, int], None]


def write_report(
    answers: Answers,
    target: Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    also: Callable[[OutputFolder], None] | None = None,
) -> int:
    """Writes the report of a run to the folder ``target``. Returns how many bytes it has.

    ``also`` writes more files before the folder appears.
    """
    with new_folder(target, overwrite=overwrite) as folder, Payloads(answers.run) as payloads:
        copy_assets(folder)
        links = Links(answers.run)
        context = Context(answers, links, payloads, [page for page in PAGES if page.is_needed(answers)])
        common = {
            "run": answers.run,
            "answers": answers,
            "links": links,
            "pages": context.pages,
            "unit_label": unit_label,
        }
        _write_units(answers, folder, common, links, payloads, progress)
        for page in context.pages:
            template = environment().get_template(page.template)
            folder.write(page.name, page_bytes(template.render(common, root="", page=page, **page.values(context))))
        _write_data(answers, folder, links)
        if also is not None:
            also(folder)
        return folder.written_bytes


def _write_units(
    answers: Answers,
    folder: OutputFolder,
    common: dict[str, Any],
    links: Links,
    payloads: Payloads,
    progress: Progress | None,
) -> None:
    """The pages of compilations and their payloads, one compilation after the other."""
    run = answers.run
    template = environment().get_template("compilation.html")
    provenance = environment().get_template("provenance.html")
    neighbours = _neighbours(answers)
    pages = PayloadPages(folder, payloads, links)
    done, total = 0, len(run.compilations) + len(run.ranks)
    for rank in run.ranks:
        spans: dict[CompileId, list[Span]] = defaultdict(list)
        for span in rank.spans:
            spans[span.id].append(span)
        for unit in [*rank.compilations.values(), *([rank.outside] if rank.outside.attempts else [])]:
            for record in unit.records:
                pages.write(record)
            near = neighbours[unit.process, unit.id]
            for name, shown in provenance_pages(unit, payloads, links):
                folder.write(name, page_bytes(provenance.render(common, root="../../", page=None, **shown)))
                near.provenance.append(name)
            values = page_values(run, unit, links, near, spans.get(unit.id, []))
            text = template.render(common, root="../../", page=None, **values)
            folder.write(links.compilation(unit), page_bytes(text))
            done += 1
            if progress is not None:
                progress(done, total)


def _neighbours(answers: Answers) -> defaultdict[tuple[str, CompileId], Neighbours]:
    """The chain and the problems of each compilation."""
    found: defaultdict[tuple[str, CompileId], Neighbours] = defaultdict(Neighbours)
    for chain in answers.chains:
        previous: Compilation | None = None
        for unit in chain.units:
            mine = found[unit.process, unit.id]
            mine.before = previous
            if previous is not None:
                found[previous.process, previous.id].after = unit
            previous = unit
        for link in chain.links:
            found[link.unit.process, link.unit.id].link = link
    for problem in answers.problems:
        for key in {(o.process, o.id) for o in problem.occurrences}:
            found[key].problems.append(problem)
    return found


def _write_data(answers: Answers, folder: OutputFolder, links: Links) -> None:
    """What machines read, and what the pages' scripts read."""
    run = answers.run
    folder.write("data/run.json", to_json(answers.as_json()))
    folder.write("data/problems.json", to_json([problem_json(problem) for problem in answers.problems]))
    folder.write_parts("data/compilations.jsonl", _json_lines("compilations", compilation_rows(run)))
    folder.write_parts("data/spans.jsonl", _json_lines("spans", span_rows(run)))
    folder.write_parts("data/trace.json", perfetto_trace(run))
    timeline = to_json(timeline_columns(run, links))
    folder.write("data/timeline.js", b"window.tracewiseTimeline=", timeline, b";\n")
    folder.write("data/search.js", b"window.tracewiseSearch=", to_json(search_index(answers, links)), b";\n")


def _json_lines(table: str, rows: Iterator[tuple[Any, ...]]) -> Iterator[bytes]:
    names = TABLES[table].names
    for row in rows:
        yield to_json({name: value for name, value in zip(names, row, strict=True) if value is not None}) + b"\n"
