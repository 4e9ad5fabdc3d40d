"""What does the checker say when one line of these programs is wrong? Runs `shardwise mutate` over all of them.

python examples/parallelisms/mutants.py           counts, survivors and false alarms
python examples/parallelisms/mutants.py --write   the same, and docs/mutants.md
python examples/parallelisms/mutants.py --check   the same, and whether docs/mutants.md says so
"""

import argparse
import os
import sys
from pathlib import Path

from shardwise.cli.runs.progress import progress
from shardwise.host.program import Program
from shardwise_devtools.mutate.explained import Explained, read_explained
from shardwise_devtools.mutate.judge import Fate, Judged, Tally
from shardwise_devtools.mutate.measure import Bench, judge_all
from shardwise_devtools.mutate.mutants import mutants_in
from shardwise_devtools.mutate.report import summary

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "mutants.md"
GPT = (
    "--layers 1 --width 16 --heads 4 --kv-heads 2 --hidden 16 --vocab 64 --batch 4 --length 8 --steps 2 --dtype float64"
)
PROGRAMS: dict[str, tuple[str, dict[str, int], str]] = {
    "tensor_parallel.py": ("tensor_parallel.py", {"dp": 2, "tp": 2}, ""),
    "sequence_parallel.py": ("sequence_parallel.py", {"dp": 2, "tp": 2}, ""),
    "context_parallel.py": ("context_parallel.py", {"dp": 2, "cp": 2}, ""),
    "data_parallel.py": ("data_parallel.py", {"dp": 2, "tp": 2}, ""),
    "expert_parallel.py": ("expert_parallel.py", {"dp": 2, "ep": 2}, ""),
    "sharded_parameters.py": ("sharded_parameters.py", {"replica": 2, "shard": 2}, ""),
    "ulysses.py": ("ulysses.py", {"dp": 2, "sp": 2}, ""),
    "training_step.py": ("training_step.py", {"dp": 2, "tp": 2}, ""),
    "gpt": ("../gpt/train.py", {"dp": 2, "tp": 2}, GPT),
    "gpt, sequence parallel": ("../gpt/train.py", {"dp": 2, "tp": 2}, f"{GPT} --sequence-parallel"),
}
"""By the name in the report: the script, the mesh and the script's further arguments."""

HEAD = """\
# Mutants

How often would a mistake slip through? `shardwise mutate` makes one at a time in programs that are right: it drops or
doubles a collective, names another axis, dim or transition, moves it past another operation, divides a loss by another
count. Each mutant runs on four real processes and on one; the numbers decide whether it is wrong, and then the checker
is asked, with local and with global types. This page is written by `python examples/parallelisms/mutants.py --write`.

| fate | meaning |
| --- | --- |
| killed | the numbers are wrong, and the checker says so |
| survived | the numbers are wrong, and the checker accepts the program |
| false alarm | the numbers are right, and the checker rejects the program |
| misdeclared | it runs bit for bit as before; what it declares is another type than the tensors have, and is rejected |
| harmless | the numbers are right, and the checker accepts the program |
| loud | it raises or hangs by itself: no silent mistake |

"""


def arguments_of(mesh: dict[str, int], more: str) -> tuple[str, ...]:
    """The script's arguments; every axis has an option of its name."""
    return (*(word for axis in mesh for word in (f"--{axis}", f"{{{axis}}}")), *more.split())


def judged_of(name: str, jobs: int, explained: tuple[Explained, ...], operators: tuple[str, ...] = ()) -> list[Judged]:
    """Every mutant of one program; ``operators``: those of these kinds alone."""
    script, mesh, more = PROGRAMS[name]
    path = (HERE / script).resolve()
    mutants = mutants_in(path, tuple(mesh), operators)
    program = Program(path=os.fspath(path), arguments=arguments_of(mesh, more))
    done: list[Judged] = []
    with progress(lambda: f"{name}: {len(done)} of {len(mutants)} mutants judged"):
        for one in judge_all(Bench.of(program, mesh), mutants, jobs, explained):
            done.append(one)
    return done


def page(found: dict[str, list[Judged]]) -> str:
    """The report of all programs."""
    total = [one for judged in found.values() for one in judged]
    lines = [HEAD, "| program | " + " | ".join(fate.value for fate in Fate) + " |", "| --- " * (len(Fate) + 1) + "|"]
    for name, judged in {**found, "**all**": total}.items():
        tally = Tally(judged)
        lines.append(f"| {name} | " + " | ".join(str(tally.count(fate)) for fate in Fate) + " |")
    share = Tally(total)
    survived = share.count(Fate.SURVIVED)
    lines += ["", f"Of {len(total)} mutants {share.silent} are silent mistakes; {survived} of them survive, which is"]
    lines += [f"{survived / len(total):.1%} of all mutants and {share.survival:.1%} of the silent ones.", ""]
    for title, fate in (("Survivors", Fate.SURVIVED), ("False alarms", Fate.FALSE_ALARM)):
        rows = [(name, one) for name, judged in found.items() for one in judged if one.fate is fate]
        lines += [f"## {title}", ""]
        lines += ["| place | mistake | why |", "| --- | --- | --- |"] if rows else ["None."]
        lines += [
            f"| {name}, `{one.mutant.place}` | {_change(one)} | {one.reason or '**not explained**'} |"
            for name, one in rows
        ]
        lines.append("")
    return "\n".join(lines)


def _change(one: Judged) -> str:
    return f"{one.mutant.operator}: `{_cell(one.mutant.before)}` becomes `{_cell(one.mutant.after)}`"


def _why(one: Judged) -> str:
    return one.reason or "**not explained**"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/mutants.md")
    parser.add_argument("--check", action="store_true", help="fail if docs/mutants.md says something else")
    parser.add_argument("--only", choices=PROGRAMS, action="append", help="one program; may be given again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if (args.write or args.check) and args.only:
        parser.error("--write and --check need all programs")
    explained = read_explained(HERE / "explained.toml")
    found = {}
    for name in args.only or PROGRAMS:
        found[name] = judged_of(name, args.jobs, explained)
        tally = Tally(found[name])
        print(f"{name}: {summary(tally)}", flush=True)
        for one in tally.unexplained:
            mutant = one.mutant
            print(f"  {one.fate.value} at {mutant.place}: {mutant.operator}: {mutant.before} -> {mutant.after}")
            print(f"    {one.measured.detail} | {one.said}", flush=True)
    total = Tally([one for judged in found.values() for one in judged])
    print(f"all: {summary(total)}")
    if args.write:
        PAGE.write_text(page(found))
    if args.check and PAGE.read_text() != page(found):
        print("docs/mutants.md says something else: run python examples/parallelisms/mutants.py --write")
        return 1
    return 1 if total.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
