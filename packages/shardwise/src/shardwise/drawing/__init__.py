"""Pictures of meshes, tensors and moves: one model, one layout, drawn as text and as SVG.

what a picture is          model, nesting, symbols
where it goes              layout, fitting
how it is made             drawing, text, svg
pictures                   tensors, mesh, shards, layout_pictures, plan_pictures, transition_pictures, type_pictures
what they show             contents, spread_tensor, shard_notes
who asks                   subjects, in_notebooks
"""
