import json
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "oracles" / "metrics"


@pytest.fixture(scope="session")
def oracle():
    """What published implementations say of a case: a function of its name -> codes, factors, expected numbers."""
    expected = json.loads((FOLDER / "expected.json").read_text())["cases"]

    def load(name):
        with np.load(FOLDER / f"{name}.npz") as file:
            codes, factors = file["latents"].astype(float), file["sources"].astype(float)
        return codes, factors, expected[name]["expected"]

    return load


@pytest.fixture(scope="session")
def oracle_folder():
    """Where the inputs and the numbers of published implementations are kept."""
    return FOLDER


@pytest.fixture(scope="session")
def alignment():
    """A toy pair of runs, worked out by hand for every group."""
    return json.loads((FOLDER.parent / "alignment.json").read_text())["alignment"]
