"""Traces a program with graph breaks, recompilations and a failure, and writes the report: python demo.py [FOLDER]."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CASES = ("break", "recompile", "specialize", "fail")


def main(folder: Path) -> int:
    """Leaves the trace in FOLDER/trace and the report in FOLDER/report."""
    shutil.rmtree(folder / "trace", ignore_errors=True)
    environment = {**os.environ, "TORCH_TRACE": str(folder / "trace"), "INDUCTOR_PROVENANCE": "1"}
    print(f"running {', '.join(CASES)} with TORCH_TRACE={folder / 'trace'}; compiling takes a minute", flush=True)
    script = Path(__file__).with_name("basic.py")
    done = subprocess.run(
        [sys.executable, script, *CASES], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return done.returncode
    report = ("report", str(folder / "trace"), "--output", str(folder / "report"), "--overwrite")
    return subprocess.run([sys.executable, "-m", "tracewise", *report], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/trace-demo")))
