"""Measure everything and print the tables.

python benchmarks/run.py                    print
python benchmarks/run.py --json FILE        and write the numbers
python benchmarks/run.py --write            and bring docs/benchmarks.md up to date
python benchmarks/run.py --quick            few repeats, to see that it works
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


def page(rows: list[Row]) -> str:
    return (
        "# Benchmarks\n\n"
        "`make bench` measures this; medians, and ratios within one run; calls and steps in CPU time. "
        f"Taken with {machine()}.\n\n{table(rows).rstrip()}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    rows: list[Row] = []
    for measure in (
        bench_calls.measure,
        bench_operators.measure,
        bench_steps.measure,
        collectives,
        bench_command.measure,
    ):
        found = measure(args.quick)
        print(table(found), flush=True)
        rows += found
    if args.json:
        args.json.write_text(
            json.dumps({"machine": machine(), "rows": [row.to_dict() for row in rows]}, indent=2) + "\n"
        )
    if args.write:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
