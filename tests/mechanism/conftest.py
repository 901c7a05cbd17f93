"""Generators whose verdicts are known by hand: A1 to A14 of tests/oracles/mechanistic/analytic.json."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _one_thread():
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else None
    if torch:
        torch.set_num_threads(1)
    yield
    if torch:
        torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def generators():
    """Torch functions (rows, d) -> (rows, m) by their id."""
    torch = pytest.importorskip("torch")
    exp, sin, tanh = torch.exp, torch.sin, torch.tanh

    def of(formula):
        return lambda s: torch.stack(formula(*s.unbind(1)), 1)

    def separate(a, b):
        return a, sin(a) + 2 * a, b, b**3 + b

    def summed(a, b, c):
        x, y, z = a + b, b, c
        return x, exp(x), 2 * x + x**3, x + z, 2 * x - z, y + z, y - 3 * z, y, exp(y), y + y**3

    half = 2**-0.5
    return {
        "A1": of(separate),
        "A2": of(lambda a, b: (a + b, a - b, exp(a) + b**3)),
        "A3": of(lambda a, b: (a + b, a - b)),
        "A4": of(lambda a, b: (a / (a**2 + b**2), b / (a**2 + b**2))),
        "A5": of(lambda a, b: (a, a**2 + 3 * a, exp(a), a * b, b, b**3 + b, sin(b) + 2 * b)),
        "A6": of(lambda a, b: (a, a + b, b)),
        "A7": of(lambda a, b: (a, exp(a), a + b, tanh(a + b), b, b + b**3)),
        "A8": of(lambda a, b: (a, 2 * a, a + b, a - b, b, 3 * b)),
        "A9": of(lambda a, b, c, d: (a * b, a + b**2, a - b, c * d, c**2 + d, c + exp(d))),
        "A10": of(lambda a, b, c, d: (a, exp(a), b, b**3 + b, c * d, c**2 + d, c + exp(d))),
        "A11": of(lambda a, b: (a, a**2 * b, b)),
        "A12": of(lambda a, b: separate(half * (a + b), half * (a - b))),
        "A13": of(lambda a, b, c: (a**2 + a, exp(a), a * b, exp(b), b**3 + b, b * c, exp(c), c**3 + 2 * c)),
        "A14": of(summed),
    }
