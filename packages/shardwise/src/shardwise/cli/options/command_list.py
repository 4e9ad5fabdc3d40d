"""Which commands there are, by what they are for: where each is defined, and what it says of itself in one line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listed:
    """A command as the front page lists it; ``brought_by`` the package that adds it, "" for our own."""

    summary: str
    brought_by: str = ""


SECTIONS: dict[str, dict[str, Listed]] = {
    "Look at a program": {
        "check": Listed("find its mistakes; one rank runs in this process, without a GPU"),
        "verify": Listed("are its numbers on a mesh of processes those of one rank?"),
        "infer": Listed("find types of its parameters and inputs, write them into the source"),
        "cost": Listed("count what a step sends over each mesh axis, and how long it takes"),
        "mutate": Listed("make one mistake at a time, and see which would be noticed", "shardwise-devtools"),
    },
    "Look something up": {
        "explain": Listed("what a finding means, and the program repaired"),
        "rules": Listed("what happens to a call of an operator"),
        "zoo": Listed("known ways to train in parallel, as programs that run"),
    },
    "Plan": {
        "mesh": Listed("which ranks belong together, and which groups stay inside a node"),
        "plan": Listed("the cheapest way from one type to another"),
        "draw": Listed("who holds what: types, meshes, layouts, collectives as pictures"),
        "einsum": Listed("the sharding of an einsum, forward and backward"),
    },
    "Set up": {
        "doctor": Listed("whether the installed torch is one that everything works with"),
        "lsp": Listed("findings, fixes and types in an editor"),
        "mcp": Listed("check, verify and explain as tools of a coding agent"),
    },
}

LISTED = {name: listed for commands in SECTIONS.values() for name, listed in commands.items()}
COMMANDS = {name: f"shardwise.cli.{name}" for name, listed in LISTED.items() if not listed.brought_by}
"""Our own commands, with the module that has a function of that name."""
ADDED_BY = {name: listed.brought_by for name, listed in LISTED.items() if listed.brought_by}
"""Commands that other packages bring, by the entry-point group ``shardwise.commands``, and which package it is."""
INSTEAD = {
    "help": "COMMAND --help",
    "fix": "check SCRIPT --fix",
    "watch": "check SCRIPT --watch",
    "report": "check SCRIPT --html FILE",
    "annotate": "check SCRIPT --annotate",
    "version": "--version",
}
"""What other tools have as a command, and ours as an option."""
