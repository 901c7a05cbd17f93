"""Run the command line as ``python -m congruence``."""

from congruence.cli import main

main()
