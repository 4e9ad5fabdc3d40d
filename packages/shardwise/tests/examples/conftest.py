"""Makes the modules of examples/bugs importable: they are programs, not a package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples" / "bugs"))
