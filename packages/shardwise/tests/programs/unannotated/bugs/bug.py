"""What a one-change bug in a right program of this folder is, and the words that several families of them use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """One replacement in one program.

    ``at``      a regular expression that the first disagreement has to match.
    ``module``  one for the first module whose output no layout explains; empty if the forward pass is right.
    ``unsure``  one for the reason why nothing is judged, where a right program may look like this too.
    ``missed``  why verify calls it clean, which docs/limits.md says too.
    """

    program: str
    what: str
    old: str
    new: str
    at: str
    module: str = ""
    unsure: str = ""
    missed: str = ""

    def applied(self, source: str) -> str:
        """The source with the bug. ValueError if the old text is not there exactly once."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.what}: {self.old!r} is {source.count(self.old)} times in {self.program}")
        return source.replace(self.old, self.new)


GRADIENT = "gradient of "
CLIP = "the factor by which gradients are clipped"
ROUNDED = "it moves numbers by less than a rounding to float8 does, which verify measures"
TRAINED = "parameter |loss|gradient of "
"""What differs once a step has been taken."""
