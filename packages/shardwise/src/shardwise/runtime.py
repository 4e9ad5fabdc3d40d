"""What a program calls to say and to ask what its tensors are; everything here runs with checking on or off."""

from shardwise._public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
