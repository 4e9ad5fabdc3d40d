"""`python -m tracewise`: the command line."""

from tracewise.cli.main import main

if __name__ == "__main__":
    main()
