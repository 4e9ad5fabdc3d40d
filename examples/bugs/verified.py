"""What does ``shardwise verify`` say about a program? Runs it on four ranks and on one, and compares the numbers."""

from dataclasses import dataclass

from proof import Job

from shardwise.host.program import Program
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import VerifyOptions, verify_subject

OPTIONS = VerifyOptions(timeout_s=120, narrow=False)


@dataclass(frozen=True)
class Verified:
    """How the run on four ranks compares with that on one.

    ``compared``  tensors that anything was found out about.
    ``first``     the first tensor that disagrees, in a phrase; empty if none does.
    ``errors``    what the types said on the way.
    ``failure``   why there are no numbers; empty if there are.
    """

    compared: int
    first: str
    errors: int
    failure: str

    @property
    def caught(self) -> bool:
        """True if the numbers are wrong."""
        return bool(self.first)


def verify(job: Job) -> Verified:
    """The verdict on one program."""
    arguments = (*job.program.axis_options(), *job.program.numbers, *job.args)
    verdict = verify_subject(Script(Program(path=str(job.script), arguments=arguments)), job.program.mesh, OPTIONS)
    numbers = verdict.numbers
    first = next((f"{wrong.key} {wrong.said}" for wrong in numbers.disagreements), "")
    failure = "" if verdict.failure is None else verdict.failure.text
    return Verified(numbers.compared, first, len(verdict.types.errors), failure)
