"""Check the GPT of this folder and two broken variants of it, and show what is said.

Exits with 1 if a verdict is not the one that is right.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "bugs"))

from catalogue import Bug, apply, load  # noqa: E402

SHOWN = ("copy-to-tp-forgotten", "bias-before-reduction")
OPTIONS = ("--mesh", "dp=2,tp=2", "--", "--layers", "1", "--steps", "1")


def check(title: str, bug: Bug | None, folder: Path, expected: int) -> bool:
    """Show the check of one variant; True if its exit code is the expected one."""
    shutil.rmtree(folder / "gpt", ignore_errors=True)
    apply(bug, folder / "gpt")
    options = (*OPTIONS, *(bug.args if bug else ()))
    print(f"\n=== {title}\n$ shardwise check gpt/train.py {' '.join(options)}", flush=True)
    command = [sys.executable, "-m", "shardwise", "check", "gpt/train.py", *options]
    run = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    print(f"exit code {run.returncode}", flush=True)
    if run.returncode != expected:
        print(f"expected exit code {expected}; stderr says:\n{run.stderr}", flush=True)
    return run.returncode == expected


def main() -> int:
    bugs = {bug.id: bug for bug in load()}
    with tempfile.TemporaryDirectory() as folder:
        right = [check("a GPT in data and tensor parallelism", None, Path(folder), 0)]
        for name in SHOWN:
            bug = bugs[name]
            right.append(check(f"the same, but {bug.title}", bug, Path(folder), 1))
    print("\nevery verdict is right" if all(right) else "\na verdict is wrong")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
