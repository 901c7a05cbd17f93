import pytest

from congruence.rows.devices import one_thread


@pytest.fixture(autouse=True)
def _one_thread():
    """Models of tests are small, and more threads would only wait for each other on a busy machine."""
    pytest.importorskip("torch")
    with one_thread():
        yield
