import sys

import pytest


@pytest.fixture(autouse=True)
def _one_thread():
    """Small products on all cores of a busy machine mostly wait for each other."""
    torch = pytest.importorskip("torch") if "torch" in sys.modules else None
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
