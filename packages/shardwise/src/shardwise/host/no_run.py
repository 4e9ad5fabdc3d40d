"""Why is a program not run? Apart from what runs one, so that a command that runs none knows it at no cost."""


class NoProgram(Exception):
    """There is no such script or module, or it cannot be read."""


class StartsProcesses(RuntimeError):
    """The program under check starts processes of its own, which cannot be followed."""
