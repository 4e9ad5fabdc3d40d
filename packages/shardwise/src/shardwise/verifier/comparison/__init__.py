"""Are the numbers of a mesh those of one rank? By declared layouts, by those that are true, or by digests."""
