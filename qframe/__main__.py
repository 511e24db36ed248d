"""`python -m qframe`, and the `qframe` command."""

from qframe_ping import main

if __name__ == "__main__":
    main()
