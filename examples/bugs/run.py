"""Prove every bug in numbers, ask the checker about it, and print the table.

    python examples/bugs/run.py              all bugs
    python examples/bugs/run.py wrong-axis   some of them
    python examples/bugs/run.py --write      all, and bring docs/bugs.md and the table of the README up to date

Exits with 1 if a bug is not proven, or the checker says something else than the catalogue expects.
"""

import argparse
import sys
from pathlib import Path

from catalogue import load
from evidence import gather
from table import between_markers, page, short_table

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bugs", nargs="*", metavar="BUG", help="ids; default: all")
    parser.add_argument("--write", action="store_true", help="write docs/bugs.md and the README's table")
    args = parser.parse_args()
    bugs = load()
    if unknown := set(args.bugs) - {bug.id for bug in bugs}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(bug.id for bug in bugs)}")
    if args.write and args.bugs:
        parser.error("--write needs all bugs")
    rows = gather([bug for bug in bugs if not args.bugs or bug.id in args.bugs])
    print(short_table(rows))
    if args.write:
        (ROOT / "docs" / "bugs.md").write_text(page(rows))
        readme = ROOT / "README.md"
        readme.write_text(between_markers(readme.read_text(), short_table(rows)))
    for row in rows:
        for problem in row.problems:
            print(f"{row.name}: {problem}", file=sys.stderr)
    return int(any(row.problems for row in rows))


if __name__ == "__main__":
    sys.exit(main())
