"""Where ranks sit: layouts, mesh axes and their names, the current mesh, and regions of ranks.

algebra                    index_map, layout, regions
axes                       axis, names, orthogonal, shape
the current mesh           entry, current, program, made_meshes, made_groups
what a program writes      given, normalize
nodes                      placement_on_nodes
"""

from shardwise._public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
