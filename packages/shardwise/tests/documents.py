"""Do the documents say what happens? Runs the code blocks of a Markdown page and compares the output that it shows.

    ```python title="mlp.py"     a file; written, not run; so is one of ```toml
    ```python                    run; what it prints must be in the ```text block that follows, if there is one
    ```console                   `$ shardwise ...` is run (`> file` is understood), the lines below are its stdout;
                                 `$ pytest ...` and `$ python -m unittest ...` too, without the time that they took
    <!-- not run: reason -->     before a block: left alone

The blocks of a page share a folder and a namespace, and find the README's program in the folder.

    python packages/shardwise/tests/documents.py --write [PAGE]...     put real output into these pages, or into all
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from shardwise.cli.main import main as shardwise

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n+)?^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the rest of the opening line, its text, and where the text is on the page."""

    language: str
    options: str
    text: str
    start: int
    line: int
    ignored: bool

    @property
    def file(self) -> str | None:
        found = TITLE.search(self.options)
        return found.group(1) if found else None


@dataclass(frozen=True)
class Difference:
    """A block whose text is not what happens."""

    block: Block
    real: str


def pages() -> list[Path]:
    """Every page with blocks that are run."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    return [
        Block(m[2], m[3], m[4], m.start(4), text.count("\n", 0, m.start(2)) + 1, m[1] is not None)
        for m in BLOCK.finditer(text)
    ]


def differences(text: str, folder: Path) -> Iterator[Difference]:
    """Run a page in ``folder``, which is the current one, and compare."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks((ROOT / "README.md").read_text()):
        if block.file:
            (folder / block.file).write_text(block.text)
    for block in blocks(text):
        before, printed = printed, None
        if block.ignored:
            continue
        if block.file and block.language in ("python", "toml"):
            (folder / block.file).write_text(block.text)
        elif block.language == "python":
            printed = _run_python(block, folder, names)
        elif block.language == "console":
            real = "".join(_run_console(block.text, folder))
            if real != block.text:
                yield Difference(block, real)
        elif block.language == "text" and before is not None and before != block.text:
            yield Difference(block, before)


def _run_python(block: Block, folder: Path, names: dict[str, Any]) -> str:
    file = folder / f"line_{block.line}.py"
    file.write_text(block.text)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block.text, str(file), "exec"), names)
    return out.getvalue()


def _run_console(text: str, folder: Path) -> Iterator[str]:
    for line in text.splitlines(keepends=True):
        if not line.startswith("$ "):
            continue
        yield line
        program, *arguments = shlex.split(line[2:], comments=True)
        if program == "pytest":
            yield _run_tests(["pytest", *arguments, *_plugin()], folder)
            continue
        if [program, *arguments[:2]] == ["python", "-m", "unittest"]:
            yield _run_tests(arguments[1:], folder)
            continue
        if program != "shardwise":
            raise ValueError(f"only shardwise, pytest and unittest can be run in a console block, got {line!r}")
        target = None
        if ">" in arguments:
            at = arguments.index(">")
            arguments, target = arguments[:at], arguments[at + 1]
        result = CliRunner().invoke(shardwise, arguments, prog_name="shardwise", terminal_width=80)
        if result.exit_code == 2 and "exit code 2" not in line:
            raise ValueError(f"{line.strip()} failed:\n{result.stderr}{result.stdout}")
        if target:
            (folder / target).write_text(result.stdout)
        else:
            yield of_any_build(result.stdout)


def of_any_build(text: str) -> str:
    """Without the kernels that only a torch with CUDA has: pages show what any build says."""
    return re.sub(r"^  kernels .*$", lambda line: line[0].replace(", CUDA", ""), text, flags=re.MULTILINE)


def _plugin() -> list[str]:
    """What loads the plugin where it is not installed."""
    name = "shardwise.testing.plugin"
    brought = [entry.value for entry in importlib.metadata.entry_points(group="pytest11")]
    return ["-p", "no:cacheprovider", *([] if name in brought else ["-p", name])]


def _run_tests(words: list[str], folder: Path) -> str:
    # pytest writes whole messages into its summary where one of these says that nobody watches
    watched = {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=watched | {"COLUMNS": "110", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    text = done.stdout.replace(str(folder), ".").replace(os.path.realpath(folder), ".")
    return re.sub(r" in [\d.]+s( \([\d:]+\))?", "", text).rstrip() + "\n"


def rewritten(text: str, folder: Path) -> str:
    """The page with real output."""
    for difference in reversed(list(differences(text, folder))):
        end = difference.block.start + len(difference.block.text)
        text = text[: difference.block.start] + difference.real + text[end:]
    return text


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit(__doc__)
    for path in [Path(name).resolve() for name in sys.argv[2:]] or pages():
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            before = path.read_text()
            after = rewritten(before, Path(folder))
            if after != before:
                path.write_text(after)
                sys.stdout.write(f"rewrote {path.relative_to(ROOT)}\n")
