"""What each operator does to types: the op rules, and what hand-written rules are made of.

The rules load without torch. The operators live in the checker and are loaded on first use.
"""

from shardwise._public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
