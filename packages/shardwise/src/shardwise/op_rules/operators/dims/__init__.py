"""Which dims are which? The labels of the op rules, one module per family, keyed by the rule's canonical name.

A module has ``LABELS``, a dict from the name of a rule to its labeller (``op_rules/propagation/dim_labels.py``). The
table joins them to the rules; an operator that is in no module has a local rule only.
"""

from __future__ import annotations

import importlib
import pkgutil

from ...propagation.dim_labels import Labeller


def all_labels() -> dict[str, Labeller]:
    """The labellers of every module; two labellers for one rule are refused."""
    found: dict[str, Labeller] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        for name, labeller in importlib.import_module(f"{__name__}.{module}").LABELS.items():
            if name in found:
                raise ValueError(f"{name!r} is labelled twice, again in {module}")
            found[name] = labeller
    return found
