"""The command line: `main` finds the commands, each is a module of `commands`."""
