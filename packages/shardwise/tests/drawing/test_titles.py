"""Titles of drawings are not cut off."""

from __future__ import annotations

import re

import pytest

import shardwise as spmd
from shardwise import MeshAxis, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType

DP, TP = MeshAxis.of(2, 2), MeshAxis.of(2, 1)


@pytest.mark.parametrize(
    ("subject", "ends_at"),
    [(TensorType.of({DP: V, TP: V}, PartitionSpec(DP, TP)), 674), (PartitionSpec(DP, TP), 554)],
    ids=["a type", "a spec"],
)
def test_a_title_ends_inside_the_drawing_where_a_browser_ends_it(subject, ends_at):
    """``ends_at``: measured in Chromium with DejaVu Sans, the widest of the fonts."""
    with spmd.set_current_mesh({"dp": DP, "tp": TP}):
        drawn = subject._repr_html_()
    assert "of a tensor of shape [2, 2]" in drawn
    assert float(re.search(r'<svg[^>]* width="([\d.]+)"', drawn)[1]) >= ends_at
