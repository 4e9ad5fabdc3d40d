"""The model as tables: columns with types and meanings, and their rows as plain iterators."""
