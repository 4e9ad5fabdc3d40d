"""The files that scripts read from the output of tlparse: one folder a compile id, numbered texts, and their index.

    compile_directory.json     every file of every compile id
    -_0_0_0/dynamo_output_graph_1.txt, aotautograd_cache_miss_2.json, inductor_output_code_<name>_13.html, ...
    raw.jsonl                  the table of texts, then each record's envelope
    payloads/<md5>.txt         payloads that are not such a text
    chromium_events.json       the timeline as it was logged

Numbers count over the whole log. Names come out of the log, so each is made safe first.
"""

from __future__ import annotations

import datetime
import json
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from markupsafe import escape

from tracewise.model.catalogue import KINDS
from tracewise.model.entities import Run
from tracewise.model.ids import CompileId, id_of_envelope
from tracewise.read.grammar import LogRecord, parse_json
from tracewise.read.health import Health
from tracewise.read.json_text import to_json
from tracewise.read.log import LogReader
from tracewise.report.folder import OutputFolder, safe_name
from tracewise.report.html import CONTENT_POLICY, escape_text, page_bytes

# Payloads of these kinds are texts under the kind's own name.
TEXTS = frozenset(
    (
        "dynamo_output_graph", "compiled_autograd_graph", "optimize_ddp_split_graph", "aot_joint_graph",
        "aot_forward_graph", "aot_backward_graph", "aot_inference_graph", "inductor_pre_grad_graph",
        "inductor_post_grad_graph", "inductor_input_graph", "dynamo_cpp_guards_str",
    )
)  # fmt: skip
METRICS = frozenset(("compilation_metrics", "bwd_compilation_metrics", "aot_autograd_backward_compilation_metrics"))
GUARDS = frozenset(("guard_added", "propagate_real_tensors_provenance", "propagate_real_tensors"))
SUFFIXES = (("cache_hit", "✅"), ("cache_miss", "❌"), ("cache_bypass", "❓"))
MAX_STRINGS = 10_000_000
KERNEL_STACKS = "inductor_provenance_tracking_kernel_stack_traces"
NO_ID = "-_-_-_-"
RUNTIME = "inductor_runtime_and_tensor_meta"
SCHEDULE = "inductor_collective_schedule"


class Layout:
    """Writes the files of one rank below ``prefix``, from its logs."""

    def __init__(self, folder: OutputFolder, prefix: str, *, plain: bool = False, export: bool = False) -> None:
        self.folder = folder
        self.prefix = prefix
        self.plain = plain
        self.export = export
        self.directory: dict[str, list[dict[str, Any]]] = {}
        self.schedules: list[dict[str, Any]] = []
        self.runtimes: list[dict[str, Any]] = []
        self.without_id = 0
        self._number = 0
        self._strings: dict[int, str] = {}
        self._payloads: set[str] = set()
        self._dumped: set[str] = set()

    def write(self, logs: list[Path]) -> None:
        """All files of the logs of one rank."""
        with tempfile.TemporaryFile() as raw:
            self.folder.write_parts(f"{self.prefix}chromium_events.json", _listed(self._read(logs, raw)))
            raw.seek(0)
            table = [self._strings.get(number) for number in range(max(self._strings, default=-1) + 1)]
            first = to_json({"string_table": table}) + b"\n"
            self.folder.write_parts(f"{self.prefix}raw.jsonl", chain([first], iter(lambda: raw.read(1 << 20), b"")))
        found = {name: {"artifacts": artifacts} for name, artifacts in sorted(self.directory.items())}
        self.folder.write(f"{self.prefix}compile_directory.json", _pretty(found))

    def _read(self, logs: list[Path], raw: BinaryIO) -> Iterator[bytes]:
        """The events of the timeline; what every other record becomes is written on the way."""
        for log in logs:
            for record in LogReader(log, Health()):
                if record.kind == "str":
                    self._keep_string(record.value)
                elif record.kind == "chromium_event":
                    if record.payload:
                        yield record.payload.replace(b"\n", b" ")
                else:
                    raw.write(to_json(self._raw_line(record)) + b"\n")

    def _keep_string(self, value: Any) -> None:
        if isinstance(value, list) and len(value) == 2 and type(value[1]) is int and 0 <= value[1] < MAX_STRINGS:
            self._strings[value[1]] = str(value[0])

    def _raw_line(self, record: LogRecord) -> dict[str, Any]:
        """The envelope, with what the head said; keys that it has itself keep their values."""
        line = dict(record.envelope)
        self.without_id += "stack" in line and record.kind != "stack"
        moment = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=record.time_us)
        added = {
            "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "thread": record.pid,
            "pathname": record.path,
            "lineno": record.path_line,
            "payload_filename": self._write_record(record),
        }
        for name, value in added.items():
            if value is not None:
                line[f"log_{name}" if name in line else name] = value
        return line

    def _write_record(self, record: LogRecord) -> str | None:
        """Writes what a record becomes. The file that its payload is in; None if it has none."""
        kind, value = record.kind, record.value if isinstance(record.value, dict) else {}
        id, _ = id_of_envelope(record.envelope)
        payload = record.payload
        if kind in METRICS:
            self._page(id, kind, kind, json.dumps(value, indent=2, default=str))
        elif kind in GUARDS and self.export:
            self._page(id, "symbolic_guard_information", kind, json.dumps(value, indent=2, default=str))
        if kind == "artifact":
            return self._artifact(id, str(value.get("name", "")), value.get("encoding") == "json", payload or b"")
        if payload is None:
            return None
        if kind in TEXTS:
            return self._file(id, kind, ".txt", payload)
        if kind in ("graph_dump", "optimize_ddp_split_child"):
            name = str(value.get("name", ""))
            return self._file(id, name if kind == "graph_dump" else f"{kind}_{name}", ".txt", payload)
        if kind == "exported_program" and self.export:
            return self._file(id, kind, ".txt", payload)
        if kind == "inductor_output_code":
            stem = PurePath(str(value.get("filename", ""))).stem
            name = f"{kind}_{stem}" if stem else kind
            if self.plain:
                return self._file(id, name, ".txt", payload)
            self._page(id, name, name, payload.decode("utf-8", "replace"))
        elif kind == "dynamo_guards":
            self._page(id, kind, kind, _readable_json(payload).decode("utf-8", "replace"))
        elif kind == "dump_file":
            self._dump_file(id, str(value.get("name", "")), payload)
        return self._payload(record)

    def _artifact(self, id: CompileId, name: str, is_json: bool, payload: bytes) -> str:
        if is_json and name in (SCHEDULE, RUNTIME):
            try:
                found = parse_json(payload)[0]
            except ValueError:
                found = None
            if name == SCHEDULE and isinstance(found, list):
                self.schedules.append({"graph": id.folder, "ops": found})
            elif name == RUNTIME and isinstance(found, dict) and isinstance(found.get("ops"), list):
                self.runtimes.append({"graph": id.folder, "ops": [_estimate(op) for op in found["ops"]]})
        if name == KERNEL_STACKS and is_json and (page := _kernel_stacks(payload)) is not None:
            return self._with_page(id, name, payload, page)
        return self._file(id, name, ".json" if is_json else ".txt", _readable_json(payload) if is_json else payload)

    def _with_page(self, id: CompileId, name: str, payload: bytes, page: bytes) -> str:
        """A text and a page of it; both have the text's number, and the entry the one after it."""
        number = self._number
        self.folder.write(f"{self.prefix}{id.folder}/{name}_{number}_readable.html", page)
        url = self._file(id, name, ".json", _readable_json(payload))
        self.directory[str(id)][-1] |= {
            "number": number + 1,
            "readable_url": f"{id.folder}/{name}_{number}_readable.html",
        }
        self._number = number + 2
        return url

    def _page(self, id: CompileId, name: str, title: str, text: str) -> None:
        self._file(id, name, ".html", html_page(title, f"<pre>{escape_text(text)}</pre>"))

    def _dump_file(self, id: CompileId, name: str, payload: bytes) -> None:
        """Code that stacks refer to: by its own name, once."""
        safe = safe_name(name.replace("<", "").replace(">", "").replace(".", "_")) + ".html"
        if safe not in self._dumped:
            self._dumped.add(safe)
            page = html_page(name, f"<pre>{escape_text(payload.decode('utf-8', 'replace'))}</pre>")
            self.folder.write(f"{self.prefix}dump_file/{safe}", page)
        self._list(id, safe, f"dump_file/{safe}", name)

    def _file(self, id: CompileId, name: str, extension: str, data: bytes) -> str:
        # The number and the extension must survive the limit on the length of a name.
        end = f"_{self._number}{extension}"
        safe = safe_name(name)[: 100 - len(end)].rstrip(".") + end
        url = f"{NO_ID if id.is_empty else id.folder}/{safe}"
        self.folder.write(f"{self.prefix}{url}", data)
        self._list(id, safe, url, name + end)
        return url

    def _list(self, id: CompileId, safe: str, url: str, original: str) -> None:
        suffix = next((mark for word, mark in SUFFIXES if word in original), "")
        is_renamed = safe != original and not safe.startswith("eval_with_key")
        entry = {"url": url, "name": original if is_renamed else safe, "number": self._number, "suffix": suffix}
        self.directory.setdefault(str(id), []).append(entry | {"readable_url": None})
        self._number += 1

    def _payload(self, record: LogRecord) -> str:
        digest = record.md5 if len(record.md5) == 32 and record.md5.isalnum() and record.md5.isascii() else "unknown"
        name = f"payloads/{digest}.txt"
        if digest not in self._payloads and record.payload is not None:
            self._payloads.add(digest)
            self.folder.write(f"{self.prefix}{name}", record.payload)
        return name


def html_page(title: str, body: str) -> bytes:
    """A page without script or style; ``body`` is HTML already."""
    return page_bytes(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(CONTENT_POLICY)}">'
        f"<title>{escape(title)}</title></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )


def listing(layout: Layout, rank: int) -> bytes:
    """The index of a rank's folder."""
    parts = ['<p><a href="failures_and_restarts.html">Failures and restarts</a></p>']
    for id, artifacts in sorted(layout.directory.items()):
        links = "".join(
            f'<li><a href="{escape(entry["url"])}">{escape_text(entry["name"])}</a> {entry["suffix"]}</li>'
            for entry in artifacts
        )
        parts.append(f"<h2>{escape(id)}</h2><ul>{links}</ul>")
    return html_page(f"Rank {rank}", "".join(parts))


def failures_page(run: Run, rank: int | None = None) -> bytes:
    """Compilations that failed or were begun anew, of one rank or of all."""
    rows = []
    for unit in run.compilations:
        if rank is not None and unit.rank != rank:
            continue
        reasons = [("restart", reason) for reason in unit.restart_reasons]
        if unit.metrics.get("fail_type"):
            reasons.append((str(unit.metrics["fail_type"]), str(unit.metrics.get("fail_reason") or "no reason given")))
        for what, reason in reasons:
            cells = (str(unit.id), unit.function, what, reason)
            rows.append("<tr>" + "".join(f"<td>{escape_text(cell)}</td>" for cell in cells) + "</tr>")
    head = "<tr><th>id</th><th>function</th><th>what</th><th>reason</th></tr>"
    return html_page("Failures and restarts", f"<table>{head}{''.join(rows)}</table>" if rows else "<p>None.</p>")


def stats(health: Health) -> dict[str, int]:
    """The counts that the reference prints, under its names."""
    counts = health.counts
    return {
        "ok": health.records - counts["bad_json"] - counts["md5"],
        "other_rank": counts["mixed_ranks"],
        "fail_glog": counts["not_a_record"],
        "fail_json": counts["bad_json"],
        "fail_payload_md5": counts["md5"] + counts["missing_payload"],
        "fail_parser": counts["bad_field"] + counts["bad_payload"] + counts["truncated"],
        "unknown": counts["unknown_kind"],
    }


def runtime_trace(runtimes: dict[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Estimated run times as a Chrome trace: the operations of a rank one after the other."""
    events: list[dict[str, Any]] = []
    for rank, graphs in runtimes.items():
        events.append({"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"Rank {rank}"}})
        events.append({"name": "process_sort_index", "ph": "M", "pid": rank, "args": {"sort_index": rank}})
        for lane, graph in enumerate(graphs):
            start = 0
            for op in graph["ops"]:
                dur = max(1, round(op["estimated_runtime_ns"] / 1000))
                args = {"graph": graph["graph"], "rank": rank, "runtime_ns": op["estimated_runtime_ns"]}
                events.append({"name": op["name"], "cat": "runtime", "ph": "X", "ts": start, "dur": dur, "pid": rank,
                               "tid": lane, "args": args})  # fmt: skip
                start += dur
    return events


def _estimate(op: Any) -> dict[str, Any]:
    op = op if isinstance(op, dict) else {}
    ns = op.get("estimated_runtime_ns")
    is_number = isinstance(ns, int | float) and not isinstance(ns, bool) and 0 <= ns < 1e18
    return {"name": str(op.get("name", "")), "estimated_runtime_ns": ns if is_number else 0}


def _kernel_stacks(payload: bytes) -> bytes | None:
    """The stacks of each kernel as a page; None if the payload is of another form."""
    try:
        stacks = parse_json(payload)[0]
    except ValueError:
        return None
    if not isinstance(stacks, dict):
        return None
    parts = []
    for kernel, texts in stacks.items():
        shown = "\n\n".join(str(text) for text in texts) if isinstance(texts, list) else str(texts)
        parts.append(f"<h3>{escape_text(kernel)}</h3><pre>{escape_text(shown)}</pre>")
    return html_page("Kernels and the stacks that they come from", "".join(parts))


def _readable_json(payload: bytes) -> bytes:
    try:
        return _pretty(parse_json(payload)[0])
    except (ValueError, RecursionError):
        return payload


def _pretty(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace")


def _listed(events: Iterator[bytes]) -> Iterator[bytes]:
    yield b"[\n"
    for number, event in enumerate(events):
        yield (b",\n" if number else b"") + event
    yield b"\n]\n"


assert KINDS.keys() >= TEXTS, "the kinds are those of the catalogue"
