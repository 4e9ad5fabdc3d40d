"""Measure everything and print the tables.

python benchmarks/run.py                    print
python benchmarks/run.py --json FILE        and write the numbers
python benchmarks/run.py --write            and bring docs/benchmarks.md up to date
python benchmarks/run.py --quick            few repeats, to see that it works
python benchmarks/run.py --only plans       one of calls, operators, steps, collectives, command, plans; with --write
                                            only its tables are brought up to date
"""

import argparse
import json
import os
import platform
import sys
from pathlib import Path

import bench_calls
import bench_collectives
import bench_command
import bench_operators
import bench_plans
import bench_steps
import torch
from rows import Row, table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
GROUP = "A collective with checking off, forward and backward, over an autograd function written by hand"


def collectives(quick: bool) -> list[Row]:
    """The numbers of ``bench_collectives`` as rows."""
    results = bench_collectives.collectives(repeats=3, calls=5) if quick else bench_collectives.collectives()
    return [
        Row(GROUP, name, "us", found["by_hand_us"], found["typed_us"], found["ratio"], "1.10")
        for name, found in results.items()
    ]


def machine() -> str:
    return (
        f"Python {platform.python_version()}, torch {torch.__version__}, {os.cpu_count()} cores, {platform.machine()}"
    )


MEASURES = {
    "calls": bench_calls.measure,
    "operators": bench_operators.measure,
    "steps": bench_steps.measure,
    "collectives": collectives,
    "command": bench_command.measure,
    "plans": bench_plans.measure,
}


def page(tables: list[str]) -> str:
    body = "\n\n".join(tables)
    return (
        "# Benchmarks\n\n"
        "`make bench` measures this; medians, and ratios within one run; calls, steps and plans in CPU time. "
        f"Taken with {machine()}.\n\n{body}\n"
    )


def renewed(old: str, new: list[str]) -> list[str]:
    """The tables of the page, each that was measured now in place of the one with its title."""
    found = {title(text): text for text in tables_of(old)} | {title(text): text for text in new}
    return list(found.values())


def tables_of(text: str) -> list[str]:
    """Each with its title, which is the line in bold."""
    return [f"**{part}".rstrip() for part in text.split("\n**")[1:]]


def title(text: str) -> str:
    return text.split("\n", 1)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=MEASURES)
    args = parser.parse_args()
    rows: list[Row] = []
    for name, measure in MEASURES.items():
        if args.only in (None, name):
            found = measure(args.quick)
            print(table(found), flush=True)
            rows += found
    if args.json:
        args.json.write_text(
            json.dumps({"machine": machine(), "rows": [row.to_dict() for row in rows]}, indent=2) + "\n"
        )
    if args.write:
        tables = tables_of(f"\n{table(rows)}")
        PAGE.write_text(page(renewed(PAGE.read_text(), tables) if args.only else tables))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
