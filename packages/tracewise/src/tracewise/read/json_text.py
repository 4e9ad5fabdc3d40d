"""JSON out of any value that a log can hold: lone surrogates, numbers over 64 bits, infinity."""

from __future__ import annotations

import json
from typing import Any

import orjson


def to_json(value: Any) -> bytes:
    """One line of JSON. What JSON cannot say becomes text."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        try:
            return json.dumps(value, default=str).encode("ascii")
        except (RecursionError, ValueError, TypeError) as error:
            return json.dumps(f"<not shown: {error}>").encode("ascii")
