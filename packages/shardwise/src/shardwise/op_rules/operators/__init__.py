"""The op rules, one module per family of operators."""
