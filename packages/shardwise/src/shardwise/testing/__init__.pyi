"""The public names of ``shardwise.testing``, typed; the module reads this file to know where each is defined."""

from .block import FindingsError as FindingsError
from .block import spmd as spmd
from .one_device import DifferenceError as DifferenceError
from .one_device import assert_same_on_one_device as assert_same_on_one_device
