"""``shardwise mcp``, talked to by the library's own client over standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]

SCRIPT = """\
import torch
from shardwise import P, R, all_reduce, assert_type

h = assert_type(torch.ones(4, 8), {"tp": P})
y = torch.relu(h)
"""


def asked(folder, *calls):
    """The tools that there are, and the answers to the calls."""

    async def talk():
        parameters = StdioServerParameters(
            command=sys.executable, args=["-m", "shardwise", "mcp", "--folder", str(folder)], env=dict(os.environ)
        )
        async with Client(stdio_client(parameters)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            return tools, [(await client.call_tool(name, given)).structured_content for name, given in calls]

    return asyncio.run(talk())


@pytest.mark.slow
def test_an_agent_checks_reads_explains_and_verifies(tmp_path):
    (tmp_path / "wrong.py").write_text(SCRIPT)
    (tmp_path / "right.py").write_text(SCRIPT.replace("torch.relu(h)", 'all_reduce(h, "tp", src=P, dst=R)'))
    tools, (found, page, clean, rule, unknown, plan, drawn) = asked(
        tmp_path,
        ("check", {"script": "wrong.py", "mesh": "tp=2"}),
        ("explain", {"code": "SW112"}),
        ("check", {"script": "right.py", "mesh": "tp=2", "options": ["--strict"]}),
        ("rules", {"op": "gelu"}),
        ("check", {"script": "missing.py"}),
        ("plan", {"source": "f32[8, 4@tp]", "target": "f32[8@tp, 4]", "mesh": "tp=2"}),
        ("draw", {"subject": "f32[4@tp]", "mesh": "tp=2"}),
    )
    assert tools.keys() == {"check", "verify", "explain", "rules", "plan", "draw"}
    assert all(tool.description for tool in tools.values())
    assert found["exit_code"] == 1
    (finding,) = found["output"]["findings"]
    assert (finding["code"], finding["place"]["line"]) == ("SW112", 5)
    assert finding["help"][0].startswith('all_reduce(h, "tp", src=P, dst=R)')
    assert page["exit_code"] == 0
    assert "partial-sum-in-nonlinear-op" in page["output"]
    assert clean["exit_code"] == 0
    assert rule["exit_code"] == 0
    assert "gelu" in rule["output"]
    assert plan["exit_code"] == 0
    assert "all_to_all" in str(plan["output"])
    assert drawn["exit_code"] == 0
    assert drawn["output"].strip()
    assert unknown["exit_code"] == 2
    assert "missing.py does not exist" in unknown["complaints"][-1]


def test_an_argument_that_a_tool_does_not_have_is_refused(tmp_path):
    (tmp_path / "wrong.py").write_text(SCRIPT)
    tools, (said, page) = asked(
        tmp_path, ("check", {"script": "wrong.py", "ranks": "all"}), ("explain", {"code": "bias added on every rank"})
    )
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools.values())
    assert said is None, "an error has no answer"
    assert page["output"].startswith("SW113  term-added-per-rank")


@pytest.mark.slow
def test_an_agent_verifies_numbers(tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch\nfrom shardwise import R, assert_type\n"
        'w = assert_type(torch.arange(4.0, requires_grad=True), {"tp": R})\n(w * 2).detach()\n'
    )
    _, (verdict,) = asked(tmp_path, ("verify", {"script": "train.py", "mesh": "tp=2"}))
    assert verdict["output"]["schema"].startswith("shardwise.verify/")
    assert verdict["output"]["numbers"]["disagreements"] == []
