"""What a run that is verified leaves: its tensors by name, how it ended, and where its source could have types.

what is run, and how       subject, options, intervention
what a run leaves          record, failure, batches, draws
names of tensors           naming, variables, flat_parts, expressions, annotation_sites
one rank to compare with   reference, references, rounded
"""
