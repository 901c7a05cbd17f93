from congruence.cli._app import COMMANDS as COMMANDS
from congruence.cli._app import build as build
from congruence.cli._app import main as main
