"""The commands as tools of the Model Context Protocol: each answers with its exit code and what the command prints."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool
from pydantic import BaseModel, Field

TIMEOUT_S = 600.0
INSTRUCTIONS = """\
shardwise type-checks distributed PyTorch programs without a GPU. The loop: check the script on a mesh; explain a code
that you do not know; repair the line that a finding names, as one of its help lines says; check again until exit_code
is 0; then verify, which compares the numbers of the mesh with those of one rank. A program with clean types and wrong
numbers is wrong.
exit_code: 0 clean, 1 findings, 2 no verdict (wrong usage, a crash, nothing checked), 3 inconclusive."""

Script = Annotated[
    str,
    Field(
        description="the script, relative to the project's folder, or a module after -m: '-m pkg.x'; empty: what "
        "pyproject.toml says"
    ),
]
Mesh = Annotated[
    str, Field(description="axes with sizes, outermost first: 'dp=2,tp=2'; empty: what pyproject.toml says")
]
Arguments = Annotated[list[str] | None, Field(description="arguments of the script; small numbers make a run short")]
Options = Annotated[list[str] | None, Field(description="more options of the command, e.g. ['--ranks', 'all']")]


class ToolAnswer(BaseModel):
    """What a command answers.

    ``exit_code``  of the command; its meaning is in the instructions of the server.
    ``output``     a document of the command's JSON schema, or its text.
    ``complaints`` the last lines that the command or the program wrote to standard error.
    """

    exit_code: int
    output: Any
    complaints: list[str] = []


async def run_command(folder: Path, command: str, words: list[str], *, as_json: bool = False) -> ToolAnswer:
    """Run a command of ours in ``folder`` and take its answer. It ends with the call, or when it takes too long."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shardwise", command, *words),
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, complaints = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    except TimeoutError:
        return ToolAnswer(exit_code=2, output="", complaints=[f"ended after {TIMEOUT_S:g} s: give it less to do"])
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    text = out.decode("utf-8", "replace")
    output: Any = text
    if as_json and text.strip():
        with contextlib.suppress(ValueError):
            output = json.loads(text)
    last = complaints.decode("utf-8", "replace").strip().splitlines()[-10:]
    return ToolAnswer(exit_code=int(process.returncode or 0), output=output, complaints=last)


def _words(script: str, mesh: str, arguments: list[str] | None, options: list[str] | None) -> list[str]:
    program = script.split() if script.startswith("-m ") else [script] if script else []
    if arguments and not program:
        raise ValueError("arguments are those of a script: name it")
    on_mesh = ["--mesh", mesh] if mesh else []
    return [*on_mesh, *(options or []), "--format", "json", *program, *(["--", *arguments] if arguments else [])]


def _strict(tool: Tool) -> Tool:
    """The tool, refusing arguments that it does not have: one that is passed over is a check that nobody makes."""
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    return tool.model_copy(update={"parameters": arguments.model_json_schema(by_alias=True)})


def make_server(folder: Path) -> MCPServer:
    """The server with its tools; paths are relative to ``folder``."""
    tools: list[Callable[..., Awaitable[ToolAnswer]]] = []

    @tools.append
    async def check(
        script: Script = "", mesh: Mesh = "", arguments: Arguments = None, options: Options = None
    ) -> ToolAnswer:
        """Type-check a training script: run one rank of it in an imagined job, without a GPU. A finding has a code, a
        message, its place, the operands with their types and where these came from, and help: calls that mend it.
        """
        return await run_command(folder, "check", _words(script, mesh, arguments, options), as_json=True)

    @tools.append
    async def verify(
        script: Script = "", mesh: Mesh = "", arguments: Arguments = None, options: Options = None
    ) -> ToolAnswer:
        """Run a script on all ranks of a mesh, as processes on this machine, and on one rank, and compare losses,
        gradients and declared values: the proof that a repair is right.
        """
        return await run_command(folder, "verify", _words(script, mesh, arguments, options), as_json=True)

    @tools.append
    async def explain(
        code: Annotated[str, Field(description="SW112, its name, or words that it is about; empty: all codes")] = "",
    ) -> ToolAnswer:
        """What a code means: a program that has the mistake, why it is one, with numbers, and the program repaired."""
        return await run_command(folder, "explain", [code] if code else [])

    @tools.append
    async def rules(op: Annotated[str, Field(description="an operator; empty: all of them")] = "") -> ToolAnswer:
        """What an operator does to types: its law, and which placements go in and come out."""
        return await run_command(folder, "rules", [op] if op else [])

    @tools.append
    async def plan(
        source: Annotated[str, Field(description="the type that there is: 'f32[8192, 4096@tp] {dp: R}'")],
        target: Annotated[str, Field(description="the type that is wanted: 'f32[8192@tp, 4096] {dp: R}'")],
        mesh: Annotated[str, Field(description="axes with sizes, outermost first: 'dp=2,tp=4'")],
    ) -> ToolAnswer:
        """How a tensor gets from one type to another: the steps as calls, with the bytes and the time of each."""
        words = ["--mesh", mesh, "--format", "json", "--", source, target]
        return await run_command(folder, "plan", words, as_json=True)

    @tools.append
    async def draw(
        subject: Annotated[str, Field(description="a type, a layout, or a transition: 'all_gather S(0) -> R'")],
        mesh: Annotated[str, Field(description="axes with sizes, outermost first: 'dp=2,tp=4'")],
    ) -> ToolAnswer:
        """Draw, as text, which rank holds which block of a tensor, or what a collective moves."""
        return await run_command(folder, "draw", ["--mesh", mesh, "--", subject])

    made = [_strict(Tool.from_function(function)) for function in tools]
    return MCPServer("shardwise", instructions=INSTRUCTIONS, tools=made)
