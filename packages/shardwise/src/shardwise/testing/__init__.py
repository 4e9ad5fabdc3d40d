"""Checking in tests: the mark and fixtures of pytest, a decorator for unittest, and a comparison with one device.

Every public name is listed in ``__init__.pyi`` with the module that defines it, and loaded on first use: pytest loads
this package in every project in which shardwise is installed.
"""

from shardwise._public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
