"""Results of queries, computed by a few statements each: a module a view."""
