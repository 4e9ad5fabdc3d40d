"""What a tensor can be: placements per mesh axis, partition specs, whole types, and the errors about them."""

from shardwise._public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
