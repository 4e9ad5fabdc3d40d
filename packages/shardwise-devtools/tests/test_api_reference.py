"""The API reference: every public name has a page, a signature and a description, and fields are read as fields."""

from __future__ import annotations

import contextlib
import doctest
import importlib
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import shardwise
from shardwise.mesh.axis import _reset as forget_axes
from shardwise.worlds.fake import fake_world
from shardwise_devtools.api_reference import described, fields, pages, public_names, signature

NAMES = {one.path: one for one in public_names()}
WITH_RANKS = (
    *("shardwise.verify", "shardwise.rulecheck.rulecheck"),
    *("shardwise.testing.spmd", "shardwise.testing.assert_same_on_one_device"),
)
"""Their examples make ranks, so they run outside of a mesh."""


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("path", NAMES)
def test_every_public_name_is_described_on_one_page(path):
    one = NAMES[path]
    assert one.doc, f"{one.home}.{one.name} has no docstring"
    holders = [page for page, text in pages().items() if f"\n## {one.name}\n" in text and one.page in page]
    assert holders == [f"reference/{one.page}.md"]


@contextlib.contextmanager
def setting() -> Iterator[DeviceMesh]:
    """What ``SETTING`` says."""
    with fake_world(0, 8):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        with shardwise.set_current_mesh(mesh), shardwise.typecheck():
            yield mesh


@pytest.mark.parametrize(
    "path", [pytest.param(one, marks=pytest.mark.processes if one in WITH_RANKS else ()) for one in NAMES]
)
def test_the_example_of_every_public_name_gives_what_it_shows(path, monkeypatch):
    monkeypatch.setattr("shardwise.mesh.program._one_mesh", lambda: None)  # other tests have left meshes behind
    forget_axes()  # and names of theirs
    example = fields(NAMES[path].doc).get("Example")
    assert example, f"{NAMES[path].home}.{NAMES[path].name} has no Example: in its docstring"
    module = importlib.import_module(path.rpartition(".")[0])
    with contextlib.nullcontext() if path in WITH_RANKS else setting() as mesh:
        known = {one.name: one.value for one in reversed(NAMES.values())}
        own = {name: getattr(module, name) for name in module.__all__}
        names = {**known, **own, "torch": torch, "nn": nn, "rules": shardwise.rules, "mesh": mesh}
        test = doctest.DocTestParser().get_doctest(example, names, path, None, None)
        told: list[str] = []
        failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
    assert tried, example
    assert not failed, "".join(told)


def test_a_long_signature_keeps_the_mark_after_which_arguments_are_named():
    lines = list(signature(NAMES["shardwise.all_gather"]))
    assert lines[:6] == [
        "from shardwise import all_gather",
        "",
        "all_gather(",
        "    x: Tensor,",
        "    axis: DeviceMeshAxis,",
        "    *,",
    ]
    assert lines[-1] == ") -> Tensor"


def test_fields_end_where_the_indentation_ends():
    doc = "What it is.\n\nShapes:  [n]\n         or [m].\nTypes:   R -> P.\n\nMore of it.\nExample:\n    f(1)\n    f(2)"
    assert fields(doc) == {
        "": "What it is.\n\n\nMore of it.",
        "Shapes": "[n]\nor [m].",
        "Types": "R -> P.",
        "Example": "f(1)\nf(2)",
    }


def test_codes_become_links_and_arguments_a_list():
    text = "\n".join(described("Do it.\n\n``x``  the operand,\n       on every rank.\n\nErrors: SW202."))
    assert "- `x`: the operand,\n  on every rank." in text
    assert "[SW202](../codes/SW202.md)" in text
