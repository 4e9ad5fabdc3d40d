"""Measures tracewise on a big log made of the golden ones: python bench.py [SIZE_MB] [FOLDER].

U is the CPU time of one plain pass over the same file (split, JSON of each head, MD5 of each payload), so the figures
do not depend on the machine.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import orjson

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
RECORD = re.compile(rb"\n(?=V\d{4} )")


def make_log(folder: Path, size_mb: float) -> Path:
    """The golden logs of one process, repeated with payloads of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = []
    for path in sorted(GOLDEN.glob("basic-*.log.xz")):
        plain = folder / path.name.removesuffix(".xz")
        plain.write_bytes(lzma.decompress(path.read_bytes()))
        sources.append(str(plain))
    target = folder / "big" / "big.log"
    target.parent.mkdir(exist_ok=True)
    script = Path(__file__).with_name("big.py")
    subprocess.run([sys.executable, script, "--distinct", target, str(size_mb), *sources], check=True)
    return target


def plain_pass_s(path: Path) -> float:
    """U: what any reader has to do."""
    begin = time.process_time()
    for record in RECORD.split(path.read_bytes()):
        head, _, body = record.partition(b"\n")
        orjson.loads(head[head.index(b"] {") + 2 :])
        if body:
            hashlib.md5(body[1:].replace(b"\n\t", b"\n"), usedforsecurity=False).hexdigest()
    return time.process_time() - begin


def measured(*arguments: str) -> tuple[float, float]:
    """CPU seconds and peak megabytes of a tracewise command."""
    process = subprocess.Popen([sys.executable, "-m", "tracewise", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"tracewise {arguments[0]} ended with status {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main(size_mb: float, folder: Path) -> None:
    log = make_log(folder, size_mb)
    report = ("report", str(log), "--output", str(folder / "report"), "--overwrite")
    # Before the plain pass: what this process holds counts as the peak of those that it starts.
    figures = {"report": measured(*report), "show": measured("show", str(log))}
    unit_s = plain_pass_s(log)
    print(f"log: {log.stat().st_size / 1e6:.0f} MB; U = {unit_s:.2f} CPU s")
    for name, (cpu_s, peak_mb) in figures.items():
        print(f"{name}: {cpu_s:.2f} CPU s = {cpu_s / unit_s:.1f} U, peak {peak_mb:.0f} MB")
    written = sum(path.stat().st_size for path in (folder / "report").rglob("*") if path.is_file())
    print(f"report: {written / 1e6:.0f} MB in files = {written / log.stat().st_size:.2f} of the log")


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if len(sys.argv) > 1 else 200.0,
        Path(sys.argv[2] if len(sys.argv) > 2 else "build/tracewise-bench"),
    )
