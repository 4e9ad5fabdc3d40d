"""Compilations by who called them: user stacks merged by their common beginnings."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracewise.find.problems import RESUME
from tracewise.model.entities import Compilation, Frame, Run

# Beyond it, compilations hang at the last frame that has a node; the table above has them all.
MAX_NODES = 300
MAX_DEPTH = 60


@dataclass(slots=True)
class Node:
    """One frame with the compilations that begin there and the frames that it calls."""

    frame: Frame | None
    units: list[Compilation] = field(default_factory=list)
    children: dict[Frame, Node] = field(default_factory=dict)

    @property
    def cost_us(self) -> float:
        own = sum(unit.duration_us or 0.0 for unit in self.units)
        return own + sum(child.cost_us for child in self.children.values())


def frame_tree(run: Run) -> Node:
    """The root of the tree. Frames of torch and Python are left out: they are the same for everybody."""
    root, nodes = Node(None), 0
    for unit in run.compilations:
        node = root
        stack = [frame for frame in unit.stack if not frame.is_library][-MAX_DEPTH:]
        for frame in stack:
            if frame not in node.children:
                if nodes >= MAX_NODES:
                    break
                nodes += 1
                node.children[frame] = Node(frame)
            node = node.children[frame]
        node.units.append(unit)
    return root


def unit_label(unit: Compilation) -> str:
    """The function's name; the rest of a broken one is called after it."""
    match = RESUME.match(unit.function)
    return f"{match['function']}, after the break at line {match['line']}" if match else unit.function
