"""``python -m shardwise`` is the command ``shardwise``."""

import os
import sys

if not sys.flags.safe_path:
    # Python has put the current folder first, where a click.py of the program's would be taken for ours.
    sys.path[0] = os.path.dirname(sys.executable)

from shardwise.cli.start import main

main()
