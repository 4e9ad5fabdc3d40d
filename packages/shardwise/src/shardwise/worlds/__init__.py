"""All ranks of a job on one machine: fake, in one process, or a process each."""
