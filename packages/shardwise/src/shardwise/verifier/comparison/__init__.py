"""Are the numbers of a mesh those of one rank? All records, in order; by digests where ranks are processes."""
