"""``_repr_html_`` of types, specs, meshes, layouts and plans, which lie far left of the folder that draws them.

A notebook asks a value for its HTML and for nothing else, so the value has to know. First use loads the drawings; who
never looks at a value in a notebook pays nothing. As with ``_public_names``, nothing is imported until somebody asks.
"""

from __future__ import annotations

import importlib


class Pictured:
    """What a notebook shows as a picture, without anything told to it before."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        html: str | None = importlib.import_module("shardwise.drawing.in_notebooks").html_of(self)
        return html
