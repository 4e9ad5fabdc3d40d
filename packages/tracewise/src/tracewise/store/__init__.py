"""Traces and files of events as DuckDB tables."""
