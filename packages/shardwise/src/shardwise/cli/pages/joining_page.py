"""What does the rule of a branch or a loop look like? A table of what its functions give, and what becomes of it."""

from __future__ import annotations

import itertools

from shardwise.diagnostics.printing.printable import columns
from shardwise.op_rules.propagation.local import Given, Refusal, local_rule
from shardwise.op_rules.schema import OpRule
from shardwise.types.placement import I, P, R, V

_ONE_SLICE = "the function is checked on one slice; what it gives is a slice of the result"


def joining(rule: OpRule) -> str:
    """Along one mesh axis: two results that stand for each other, in either order, and what decides between them."""
    if not rule.linear:
        return _ONE_SLICE
    joined = tuple(name for term in rule.terms for name in term.factors)
    decides = tuple(name for name in rule.parameters if name not in joined and not name.startswith("~"))
    lines = [(*decides, *joined, "->", "result")]
    pairs = itertools.combinations_with_replacement((R, I, V, P), 2)
    for decision, pair in itertools.product([(R,), (V,)] if decides else [()], pairs):
        places = (*decision, *pair)
        place = local_rule(
            rule, [Given(name, one, grad=name in joined) for name, one in zip((*decides, *joined), places, strict=True)]
        )
        said = f"refused, {place.code}" if isinstance(place, Refusal) else repr(place)
        lines.append((*map(repr, places), "->", said))
    return "\n  ".join(["along one mesh axis", *columns(lines)])
