"""Does a mutant get the fate that its numbers and the checker's words add up to?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardwise.diagnostics.errors import SpmdValueError
from shardwise_devtools.mutate.explained import Explained, read_explained, reason_for
from shardwise_devtools.mutate.judge import VERIFY, Fate, Judged, Measured, Numbers, Said, Tally
from shardwise_devtools.mutate.operators import Mutant
from shardwise_devtools.mutate.report import to_json, to_text
from shardwise_devtools.mutate.source import Source

ACCEPTED = (Said("local"), Said("global"))
REJECTED = (Said("local"), Said("global", ("SW201 at train.py:4",)))
EQUAL, WRONG, DEAD = Measured(Numbers.EQUAL), Measured(Numbers.DIFFERENT, "twice"), Measured(Numbers.CRASHED)
UNCHANGED = Measured(Numbers.EQUAL, unchanged=True)


def mutant(operator: str = "drop", before: str = "all_reduce(x)", after: str = "x") -> Mutant:
    return Mutant(operator, Source(Path("train.py"), ""), 4, before, after, "")


@pytest.mark.parametrize(
    ("measured", "said", "operator", "before", "fate"),
    [
        (WRONG, REJECTED, "drop", "all_reduce(x)", Fate.KILLED),
        (WRONG, ACCEPTED, "drop", "all_reduce(x)", Fate.SURVIVED),
        (WRONG, (*ACCEPTED, Said(VERIFY)), "drop", "all_reduce(x)", Fate.SURVIVED),
        (WRONG, (*ACCEPTED, Said(VERIFY, ("the loss differs",))), "drop", "all_reduce(x)", Fate.VERIFIED),
        (UNCHANGED, REJECTED, "letter", '"f64[4] {dp: R}"', Fate.MISDECLARED),
        (EQUAL, ACCEPTED, "drop", "all_reduce(x)", Fate.HARMLESS),
        (EQUAL, REJECTED, "drop", "all_reduce(x)", Fate.FALSE_ALARM),
        (DEAD, REJECTED, "drop", "all_reduce(x)", Fate.LOUD),
        (DEAD, ACCEPTED, "drop", "all_reduce(x)", Fate.LOUD),
        (UNCHANGED, REJECTED, "axis", "all_reduce(x)", Fate.MISDECLARED),
        (UNCHANGED, REJECTED, "drop", "reinterpret(x, src=V, dst=P)", Fate.MISDECLARED),
        (UNCHANGED, REJECTED, "drop", "all_reduce(x)", Fate.FALSE_ALARM),
        (UNCHANGED, REJECTED, "late", "reinterpret(x)", Fate.MISDECLARED),
        (EQUAL, REJECTED, "axis", "all_reduce(x)", Fate.FALSE_ALARM),
    ],
)
def test_the_fate_follows_from_numbers_and_words(
    measured: Measured, said: tuple[Said, ...], operator: str, before: str, fate: Fate
) -> None:
    assert Judged(mutant(operator, before), measured, said).fate is fate


def test_survival_is_a_share_of_the_silent_mistakes_only() -> None:
    killed, survived = Judged(mutant(), WRONG, REJECTED), Judged(mutant(), WRONG, ACCEPTED)
    others = [Judged(mutant(), EQUAL, ACCEPTED), Judged(mutant(), DEAD, ACCEPTED)]
    tally = Tally([killed, killed, killed, survived, *others])
    assert (tally.silent, tally.survival) == (4, 0.25)
    assert Tally(others).survival == 0


def test_a_survivor_with_a_reason_is_explained() -> None:
    judged = [Judged(mutant(), WRONG, ACCEPTED), Judged(mutant(), WRONG, ACCEPTED, reason="known")]
    assert Tally(judged).unexplained == judged[:1]


def test_the_text_shows_survivors_in_full_and_counts_the_rest() -> None:
    judged = [Judged(mutant(), WRONG, ACCEPTED, "known"), Judged(mutant(), WRONG, REJECTED)]
    text = to_text(judged)
    assert text.count("\n  - all_reduce(x)\n  + x\n  numbers: twice\n") == 1
    assert "  explained: known\n" in text
    assert text.endswith(
        "2 mutants: 1 survived, 0 false alarms, 0 found by verify, 1 killed, 0 misdeclared, 0 harmless, 0 loud; "
        "50.0% of the silent ones survive"
    )
    assert "global: SW201 at train.py:4" in to_text(judged, everything=True)


def test_the_json_has_every_mutant() -> None:
    report = json.loads(to_json([Judged(mutant(), WRONG, REJECTED), Judged(mutant(), EQUAL, REJECTED)]))
    assert [one["fate"] for one in report["mutants"]] == ["killed", "false_alarm"]
    assert report["counts"]["false_alarm"] == 1
    assert report["mutants"][0]["types"] == {"local": [], "global": ["SW201 at train.py:4"]}


def test_reasons_are_read_and_matched_by_what_the_report_shows(tmp_path: Path) -> None:
    path = tmp_path / "mutants.toml"
    path.write_text('[[explained]]\nplace = "train.py:*"\nafter = "x"\nreason = "because"\n')
    explained = read_explained(path)
    assert explained == (Explained("because", place="train.py:*", after="x"),)
    assert reason_for(mutant(), explained) == "because"
    assert reason_for(mutant(after="y"), explained) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[explained", "cannot read"),
        ('[[explained]]\nplace = "a"', "entry 1 of .* has no reason"),
        ('[[explained]]\nreason = "a"\nline = "4"', "has unknown line"),
        ("[[explained]]\nreason = 4", "not a table of texts"),
        ("explained = 4", "has no list"),
        ("other = 4", "has other"),
    ],
)
def test_a_bad_list_of_reasons_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mutants.toml"
    path.write_text(text)
    with pytest.raises(SpmdValueError, match=message) as caught:
        read_explained(path)
    assert caught.value.code == "SW905"


def test_a_missing_list_of_reasons_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpmdValueError, match="cannot read"):
        read_explained(tmp_path / "none.toml")
