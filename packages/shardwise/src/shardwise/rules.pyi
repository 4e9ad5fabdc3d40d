"""The public names of ``shardwise.rules``, typed; the module reads this file to know where each is defined."""

from shardwise.interop.autograd.forward_args import bind_forward_args as bind_forward_args

from .checker.typing_rules.ndim import NdimWithSpmdType as NdimWithSpmdType
from .checker.typing_rules.operators import all_gather as all_gather
from .checker.typing_rules.operators import all_reduce as all_reduce
from .checker.typing_rules.operators import all_to_all as all_to_all
from .checker.typing_rules.operators import convert as convert
from .checker.typing_rules.operators import einsum as einsum
from .checker.typing_rules.operators import ignore as ignore
from .checker.typing_rules.operators import output as output
from .checker.typing_rules.operators import reduce_scatter as reduce_scatter
from .checker.typing_rules.operators import reinterpret as reinterpret
from .checker.typing_rules.protocol import hook_kwargs as hook_kwargs
from .checker.typing_rules.protocol import hook_shape as hook_shape
from .checker.typing_rules.protocol import run_typecheck as run_typecheck
from .op_rules.custom_rules import register_rule as register_rule
