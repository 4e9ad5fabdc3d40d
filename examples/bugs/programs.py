"""Which programs are bugs put into, and how is one started? Each runs on a mesh of 2 x 2, and on one rank."""

from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1]
OUTER, INNER = 2, 2
"""Sizes of the mesh: the outer axis has replicas, the inner one splits weights."""
GPT_SIZES = ("--layers=2", "--width=32", "--heads=4", "--kv-heads=2", "--hidden=48", "--vocab=128")
GPT_BATCH = ("--batch=8", "--length=16")


@dataclass(frozen=True)
class Program:
    """A script, its folder, which has all that it imports, and its mesh.

    ``axes``     names, outer and inner; the script has an option for each.
    ``numbers``  further options when its numbers are of interest.
    ``types``    further options when only its types are.
    """

    folder: Path
    script: str
    axes: tuple[str, str]
    numbers: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def mesh(self) -> dict[str, int]:
        return dict(zip(self.axes, (OUTER, INNER), strict=True))

    @property
    def shown(self) -> str:
        """Its path, or that of its folder if it is alone there, as the docs have it."""
        folder = f"examples/{self.folder.relative_to(EXAMPLES).as_posix()}"
        return folder if self.script == "train.py" else f"{folder}/{self.script}"

    def axis_options(self, sizes: dict[str, int | str] | None = None) -> list[str]:
        """The options that make its mesh; without sizes that of ``{axis}``, which ``shardwise verify`` fills in."""
        return [f"--{axis}={sizes[axis] if sizes else f'{{{axis}}}'}" for axis in self.axes]


SUBJECTS = EXAMPLES / "bugs" / "subjects"
PROGRAMS = {
    "gpt": Program(
        EXAMPLES / "gpt",
        "train.py",
        ("dp", "tp"),
        (*GPT_SIZES, *GPT_BATCH, "--dtype=float64", "--steps=2"),
        ("--layers=1", "--steps=1"),
    ),
    "training_step": Program(SUBJECTS, "training_step.py", ("dp", "tp")),
    "expert_parallel": Program(SUBJECTS, "expert_parallel.py", ("dp", "ep")),
    "sharded_parameters": Program(SUBJECTS, "sharded_parameters.py", ("replica", "shard")),
}
