from congruence.cli._app import app as app
from congruence.cli._app import build as build
from congruence.cli._app import main as main
