import contextlib
import importlib.util
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# A busy machine must not fail a test: time is measured in benchmarks/, never here.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# A shell that starts the tests in the background ignores Ctrl-C for them and for the commands that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Optional libraries that whole files of tests need: without them these files are left out, and the header says so.
ABSENT = [name for name in ("torch", "pandas", "polars", "dask", "yaml") if importlib.util.find_spec(name) is None]


# Under nohup SIGHUP is ignored, and programs that tests start would inherit that; from a handler they do not.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


def pytest_report_header():
    return f"not installed, tests that import them are left out: {', '.join(ABSENT)}" if ABSENT else None


def pytest_ignore_collect(collection_path):
    if ABSENT and collection_path.suffix == ".py":
        pattern = rf"^(import|from) ({'|'.join(ABSENT)})\b"
        return re.search(pattern, collection_path.read_text(encoding="utf-8"), re.MULTILINE) is not None or None
    return None


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in random order")


def pytest_collection_modifyitems(config, items):
    if (seed := config.getoption("shuffle")) is not None:
        shuffle, files = random.Random(seed).shuffle, {}
        for item in items:
            files.setdefault(item.path, []).append(item)
        groups = list(files.values())
        for some in (groups, *groups):
            shuffle(some)
        items[:] = itertools.chain(*groups)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Start every test, and the fixtures that it makes, from the same state of torch's generator, in any order."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run `congruence` with arguments in a folder of its own; return exit code, stdout and stderr."""
    from congruence.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["congruence", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def held_elsewhere():
    """A context in which another thread has locked an output, as another process would."""
    from congruence.files import alone

    @contextlib.contextmanager
    def hold(path, **options):
        held, done = threading.Event(), threading.Event()

        def work():
            with alone(path, **options):
                held.set()
                done.wait(60)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            assert held.wait(60)
            yield
        finally:
            done.set()
            thread.join()

    return hold


@pytest.fixture(scope="session")
def local_cluster():
    """A context in which dask has workers on this machine, with ports that are free."""

    @contextlib.contextmanager
    def start(**options):
        distributed = pytest.importorskip("distributed", reason="distributed is not installed")
        from congruence.cli.cluster import event_loop

        # Without an address the scheduler asks for port 8787, which another process may hold, and warns.
        address = {"dashboard_address": "127.0.0.1:0"}
        with event_loop() as loop, distributed.LocalCluster(**options, **address, loop=loop) as cluster:
            yield cluster

    return start


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel of this source."""
    out, root = tmp_path_factory.mktemp("wheel"), Path(__file__).parents[1]
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-w", str(out), str(root)], check=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def data_folder():
    """The folder of real third-party data, which is not part of the repository."""
    folder = os.environ.get("CONGRUENCE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("CONGRUENCE_DATA does not name a folder with the real data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def model_pair(data_folder):
    """Hidden representations of 2784 molecules by two trainings of one graph network."""
    folder = data_folder / "modelpairs"
    return np.load(folder / "admet_cls_seed0.npy"), np.load(folder / "admet_cls_seed1.npy")


@pytest.fixture(scope="session")
def drawn_once():
    """A block in which each kind of figure is drawn once and then reused: drawing takes most of the time of a page."""

    @contextlib.contextmanager
    def reuse():
        from congruence.report import html

        draw, svg = html._draw, {}

        def draw_once(figure, drawn, hover):
            if figure.painter not in svg:
                svg[figure.painter] = draw(figure, drawn, hover)
            return svg[figure.painter]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(html, "_draw", draw_once)
            yield

    return reuse
