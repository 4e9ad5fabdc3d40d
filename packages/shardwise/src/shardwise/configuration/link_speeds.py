"""What a project says of its links: bandwidth and latency by axis, as text like ``tp=nvlink,dp=50``."""

from __future__ import annotations

NAMED = {"nvlink": 450e9, "network": 50e9}
"""Bandwidths by name, in bytes per second and direction: NVLink 4 of an H100 SXM (900 GB/s both ways together, NVIDIA
H100 data sheet), and one 400 Gb/s port a GPU (NVIDIA ConnectX-7 data sheet)."""


LEAST_GB_S = 1e-9
"""A byte per second."""


def bandwidths(text: str) -> dict[str, float]:
    """Bytes per second by the names of axes. A ValueError says what is not understood.

    Example:
        >>> bandwidths("tp=nvlink,dp=40")
        {'tp': 450000000000.0, 'dp': 40000000000.0}
    """
    expected = f"a number of GB/s above 0, or {' or '.join(NAMED)}"
    return {
        name: NAMED[said] if said in NAMED else _number(name, said, expected, LEAST_GB_S) * 1e9
        for name, said in _pairs(text, "tp=450,dp=50")
    }


def latencies(text: str) -> dict[str, float]:
    """Seconds per message by the names of axes, from microseconds. A ValueError says what is not understood.

    Example:
        >>> latencies("dp=10")
        {'dp': 1e-05}
    """
    return {name: _number(name, said, "a number of microseconds") * 1e-6 for name, said in _pairs(text, "tp=2,dp=10")}


def _pairs(text: str, example: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    for name, equals, _ in pairs:
        if not equals or not name.strip():
            raise ValueError(f"{name.strip()!r} in {text!r} is not an axis with its value: write it like {example}")
    return [(name.strip(), said.strip()) for name, _, said in pairs]


def _number(name: str, said: str, expected: str, least: float = 0) -> float:
    try:
        found = float(said)
    except ValueError:
        found = -1.0
    if not least <= found < float("inf"):
        raise ValueError(f"axis {name} has {said!r}, expected {expected}")
    return found
