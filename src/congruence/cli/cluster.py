"""The dask cluster that a command computes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from congruence.errors import CongruenceWarning, InputError, MissingDependencyError, warn_caller

ADDRESSES = "an address looks like tcp://host:8786, and local starts workers on this machine"
_ADDRESS = re.compile(r"(?P<scheme>(tcp|tls|ws|wss|ucx)://)?(\[[0-9a-fA-F:]+\]|[\w.-]+):(?P<port>[0-9]{1,5})")
_LOGGERS = ("distributed", "tornado", "asyncio")
PATIENCE = 8  # seconds to wait for the scheduler, and for its first worker
START_SECONDS = 120  # to wait for a scheduler and workers that are started here; a loaded machine needs many


@contextlib.contextmanager
def on_cluster(address: str | None) -> Iterator[Any]:
    """Run dask computations inside the block on a scheduler, or with "local" on processes started for it.

    Yields the client, None without an address.
    """
    if address is None:
        yield None
        return
    try:
        import distributed
    except ImportError as error:
        raise MissingDependencyError("--dask needs dask and distributed: pip install 'congruence[dask]'") from error
    from congruence.rows.blocks import cluster_failures

    for name in [name for name in logging.root.manager.loggerDict if name.split(".")[0] in _LOGGERS]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are raised and reported as one sentence
    with contextlib.ExitStack() as stack:
        if address == "local":
            loop = stack.enter_context(event_loop())
            target: Any = stack.enter_context(_start_workers(distributed, loop))
        else:
            _check_address(distributed, address)
            target = address
        patience = START_SECONDS if address == "local" else PATIENCE
        _check_answers(distributed, target, address, patience)
        client = stack.enter_context(distributed.Client(target, timeout=patience))
        try:
            client.wait_for_workers(1, timeout=patience)
        except TimeoutError as error:
            raise InputError(f"--dask {address}: the scheduler has no workers; start some (dask worker)") from error
        with cluster_failures():
            yield client


@contextlib.contextmanager
def event_loop() -> Iterator[Any]:
    """Run an event loop in a thread of its own, for `LocalCluster(loop=...)` and `Client(loop=...)`.

    A loop that distributed starts itself has 10 seconds, which is too short on a loaded machine: an assertion then
    fails, and the unfinished cluster warns when it is collected.
    """
    from tornado.ioloop import IOLoop

    started, stopping = threading.Event(), asyncio.Event()
    loops: list[Any] = []

    async def work() -> None:
        _hold_signals()
        loops.append(IOLoop.current())
        started.set()
        await stopping.wait()

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True, name="event loop of dask")
    thread.start()
    if not started.wait(START_SECONDS):
        raise InputError(f"--dask local: no event loop could be started within {START_SECONDS} seconds")
    try:
        yield loops[0]
    finally:
        loops[0].add_callback(stopping.set)
        thread.join(START_SECONDS)


def _hold_signals() -> None:
    """Block the signals that a terminal sends to all processes in this thread, and in workers that it starts.

    This process ends the workers. One that ends by itself while it is started would be waited for.
    """
    from multiprocessing import resource_tracker

    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        resource_tracker.ensure_running()  # which unblocks SIGINT, and would do so when the first worker is started
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _start_workers(distributed: Any, loop: Any) -> Any:
    """Start a scheduler and workers for this process: on loopback, and with TLS and a key that only they have."""
    secure = find_spec("cryptography") is not None
    if not secure:
        warn_caller(
            "Workers of --dask local listen on 127.0.0.1 without TLS, so other users of this machine can run code on "
            "them; pip install cryptography",
            CongruenceWarning,
        )
    return distributed.LocalCluster(
        host="127.0.0.1",
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        security=True if secure else None,
        loop=loop,
        silence_logs=logging.CRITICAL,
    )


def _check_address(distributed: Any, address: str) -> None:
    """Refuse what is not an address, and TLS without certificates."""
    found = _ADDRESS.fullmatch(address)
    if not found or not 0 < int(found["port"]) < 2**16:
        raise InputError(f"--dask {address or repr(address)}: this is not an address; {ADDRESSES}")
    secured = distributed.Security().get_connection_args("client").get("ssl_context") is not None
    if found["scheme"] in ("tls://", "wss://") and not secured:
        raise InputError(f"--dask {address}: TLS needs certificates; set distributed.comm.tls in dask's configuration")


def _check_answers(distributed: Any, where: Any, address: str, patience: int) -> None:
    """Refuse an address at which no dask scheduler answers."""
    outcome: list[Exception | None] = []

    def connect() -> None:
        try:
            # Not the default client: a failed one must not be used later.
            distributed.Client(where, timeout=patience, set_as_default=False).close()
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    # Its timeout does not cover a server that accepts the connection and never answers.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(patience + 1)
    if not outcome or isinstance(outcome[0], OSError | ValueError):  # a TimeoutError is an OSError
        why = f"no scheduler answers there within {patience} seconds"
        raise InputError(f"--dask {address}: {why}; {ADDRESSES}") from (outcome[0] if outcome else None)
    if isinstance(outcome[0], Exception):  # the first bytes of a web page, for example, are read as a message length
        raise InputError(f"--dask {address}: the server there is not a dask scheduler; {ADDRESSES}") from outcome[0]
