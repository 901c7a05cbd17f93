"""The dask cluster that a command computes on."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from congruence.errors import InputError, MissingDependencyError

ADDRESSES = "an address looks like tcp://host:8786, and local starts workers on this machine"
PATIENCE = 8  # seconds to wait for the scheduler, and for its first worker


@contextlib.contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Run dask computations inside the block on a scheduler, or with "local" on processes started for it."""
    if address is None:
        yield
        return
    try:
        import distributed
    except ImportError as error:
        raise MissingDependencyError("--dask needs dask and distributed: pip install 'congruence[dask]'") from error
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are raised and reported as one sentence
    with contextlib.ExitStack() as stack:
        if address == "local":
            where: Any = stack.enter_context(
                distributed.LocalCluster(threads_per_worker=1, dashboard_address="127.0.0.1:0")
            )
        else:
            where = address
        _check_answers(distributed, where, address)
        client = stack.enter_context(distributed.Client(where, timeout=PATIENCE))
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise InputError(f"--dask {address}: the scheduler has no workers; start some (dask worker)") from error
        yield


def _check_answers(distributed: Any, where: Any, address: str) -> None:
    """Refuse an address at which no dask scheduler answers."""
    made: list[Exception | None] = []

    def connect() -> None:
        try:
            # Not the default client: a failed one must not be used later.
            distributed.Client(where, timeout=PATIENCE, set_as_default=False).close()
            made.append(None)
        except Exception as error:
            made.append(error)

    # Its timeout does not cover a server that accepts the connection and never answers.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE + 1)
    if not made or isinstance(made[0], OSError | ValueError):  # a TimeoutError is an OSError
        why = f"no scheduler answers there within {PATIENCE} seconds"
        raise InputError(f"--dask {address}: {why}; {ADDRESSES}") from (made[0] if made else None)
    if isinstance(made[0], Exception):  # the first bytes of a web page, for example, are read as a message length
        raise InputError(f"--dask {address}: the server there is not a dask scheduler; {ADDRESSES}") from made[0]
