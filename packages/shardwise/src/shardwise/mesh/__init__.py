"""Where ranks sit: layouts, mesh axes and their names, the current mesh, and regions of ranks."""

from shardwise._public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
