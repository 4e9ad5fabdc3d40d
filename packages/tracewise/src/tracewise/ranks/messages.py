"""Messages between two ranks: sends that nobody receives, receives that wait for ever, and pairs of unequal size."""

from __future__ import annotations

from collections import defaultdict

from tracewise.model.collectives import Group, Message, Recording
from tracewise.ranks.verdicts import Verdict
from tracewise.ranks.wording import place, sentence


def message_verdicts(recording: Recording) -> list[Verdict]:
    """Sends without receives and the other way round, and pairs of unequal size."""
    pairs: dict[tuple[str, int, int], tuple[list[Message], list[Message]]] = defaultdict(lambda: ([], []))
    for message in recording.messages:
        pairs[message.group, message.source, message.target][0 if message.is_send else 1].append(message)
    verdicts = []
    for (group, source, target), (sends, receives) in pairs.items():
        if not {source, target} <= recording.ranks:
            continue
        both = min(len(sends), len(receives))
        unequal = next((n for n in range(both) if sends[n].elements != receives[n].elements), None)
        name = (
            f"{sentence(str(recording.groups.get(group) or Group(group)))}, messages from rank {source} to {target}: "
        )
        if unequal is not None:
            send, receive = sends[unequal], receives[unequal]
            text = f"number {unequal + 1} has {send.elements} elements{place(recording.sites[send.site])}, "
            text += f"its receive takes {receive.elements}{place(recording.sites[receive.site])}."
            verdicts.append(Verdict("size", name + text, group, unequal + 1, [source, target], "elements", is_tie=True))
        elif len(sends) != len(receives):
            lone = (sends if len(sends) > both else receives)[both]
            at, other = (source, target) if lone.is_send else (target, source)
            text = f"rank {at} {'sends' if lone.is_send else 'receives'} number {both + 1}"
            text += f"{place(recording.sites[lone.site])}, which rank {other} never "
            text += f"{'receives' if lone.is_send else 'sends'}."
            verdicts.append(Verdict("message", name + text, group, both + 1, [other], site=recording.sites[lone.site]))
    return verdicts
