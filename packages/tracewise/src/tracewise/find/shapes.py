"""Symbolic sizes: where each was born, which conditions were put on it, which became constants."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tracewise.model.entities import Compilation, Run, Symbol, SymbolGuard

NAME = re.compile(r"\b[suz]+\d+\b")


@dataclass(slots=True)
class SymbolFacts:
    """One symbol of one compilation with all that was said of it."""

    unit: Compilation
    symbol: Symbol
    guards: list[SymbolGuard] = field(default_factory=list)

    @property
    def specialization(self) -> SymbolGuard | None:
        return next((guard for guard in self.guards if guard.kind == "specialization"), None)


def find_symbols(run: Run) -> list[SymbolFacts]:
    """All symbols, those that became constants first."""
    found: list[SymbolFacts] = []
    for unit in [*run.compilations, *(rank.outside for rank in run.ranks)]:
        by_name: dict[str, SymbolFacts] = {}
        for symbol in unit.symbols:
            facts = by_name.get(symbol.name)
            if facts is None:
                by_name[symbol.name] = SymbolFacts(unit, symbol)
            else:
                facts.symbol.sources += [source for source in symbol.sources if source not in facts.symbol.sources]
        for guard in unit.guards:
            for name in dict.fromkeys(NAME.findall(guard.expression)):
                if name in by_name:
                    by_name[name].guards.append(guard)
        found += by_name.values()
    return sorted(found, key=lambda facts: facts.specialization is None)
