"""The environment of the frameworks: one for what they share, and a folder for each of them, so that none gets in the
way of another. Nothing brings a CUDA build: torch comes first, and everything else comes without its dependencies.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .frameworks import Framework

HERE = Path(__file__).parent
TORCH = "torch==2.13.0"


class Environment:
    """Under ``folder``: ``.venv``, a folder for each framework, and ``work``, where its programs are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.python = self.folder / ".venv" / "bin" / "python"
        self.work = self.folder / "work"

    def prepare(self, frameworks: tuple[Framework, ...]) -> None:
        """Install what is missing, and write the data that programs read."""
        ready = self.folder / ".ready"
        wanted = TORCH + (HERE / "requirements.txt").read_text()
        if not ready.exists() or ready.read_text() != wanted:
            subprocess.run([sys.executable, "-m", "venv", str(self.folder / ".venv")], check=True)
            self._install(TORCH)
            self._install("--no-deps", "--requirement", str(HERE / "requirements.txt"))
            ready.write_text(wanted)
        for framework in frameworks:
            for pin in framework.pins:
                target = self._target(pin)
                if framework.cases and not target.exists():
                    self._install("--no-deps", "--no-build-isolation", "--target", str(target), pin)
        self.work.mkdir(exist_ok=True)
        if not (self.work / "assets").exists():
            subprocess.run([self.python, HERE / "programs" / "assets.py"], cwd=self.work, check=True)

    def variables(self, framework: Framework, shardwise: Path, first: Path | None = None) -> dict[str, str]:
        """What a run finds in its environment.

        ``shardwise``  the source tree of the version that is run; ``first`` is where packages are looked for first.
        """
        before = [] if first is None else [first]
        paths = [*before, shardwise / "packages" / "shardwise" / "src", *self.targets(framework)]
        return {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(self.work / "cache"),
            "TOKENIZERS_PARALLELISM": "false",
            "TORCH_EXTENSIONS_DIR": str(self.folder / "extensions"),
            "NO_COLOR": "1",
            **framework.variables,
        }

    def _install(self, *what: str) -> None:
        quietly = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run(
            [self.python, *quietly, *what], check=True, env={**os.environ, "DS_BUILD_OPS": "0"}, cwd=self.folder
        )

    def targets(self, framework: Framework) -> list[Path]:
        """The folders of what is pinned."""
        return [self._target(pin) for pin in framework.pins]

    def _target(self, pin: str) -> Path:
        return self.folder / pin.replace("==", "-")
