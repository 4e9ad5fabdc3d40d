"""shardwise: a type checker for distributed PyTorch programs.

Every public name is listed in ``__init__.pyi`` with the module that defines it, and loaded on first use, so that
importing shardwise loads neither torch nor the checker.
"""

from shardwise._public_names import public_names

from . import rules as rules
from . import runtime as runtime
from . import train as train
from . import types as types

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = public_names(__name__, __file__)


def load_ipython_extension(shell: object) -> None:
    """What ``%load_ext shardwise`` calls: the cell magic ``%%shardwise``, and how findings and meshes are shown."""
    from shardwise.notebook.magic import register

    register(shell)
