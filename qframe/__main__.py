"""`python -m qframe`, and the `qframe` command."""

from qframe.cli.main import main

if __name__ == "__main__":
    main()
