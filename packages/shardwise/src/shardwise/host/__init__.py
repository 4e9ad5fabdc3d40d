"""How a script runs as one rank on this machine: torchrun's environment, devices that are not there."""
