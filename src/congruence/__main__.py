"""Run the command line, as ``congruence`` or ``python -m congruence``."""

import sys


def run() -> None:
    """Import and run the command line; Ctrl-C ends it quietly, also while it is being imported."""
    try:
        from congruence.cli import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
