"""The API reference: every public name has a page, a signature and a description, and fields are read as fields."""

from __future__ import annotations

import pytest

from shardwise_devtools.api_reference import described, fields, pages, public_names, signature

NAMES = {one.path: one for one in public_names()}


@pytest.mark.parametrize("path", NAMES)
def test_every_public_name_is_described_on_one_page(path):
    one = NAMES[path]
    assert one.doc, f"{one.home}.{one.name} has no docstring"
    holders = [page for page, text in pages().items() if f"\n## {one.name}\n" in text and one.page in page]
    assert holders == [f"reference/{one.page}.md"]


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
