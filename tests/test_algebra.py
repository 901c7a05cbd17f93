import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg

from congruence.rows import algebra
from congruence.rows.algebra import decomposing_on, eigh, svd


def test_a_decomposition_multiplies_back(rng):
    a = rng.normal(size=(5, 7))
    u, s, vt = svd(a, full_matrices=False)
    assert_allclose(u * s @ vt, a, atol=1e-12)


def test_where_divide_and_conquer_fails_the_qr_iteration_answers(rng, monkeypatch):
    a = rng.normal(size=(6, 6))
    expected = linalg.svdvals(a)
    plain = linalg.svd

    def fails(matrix, *, full_matrices, lapack_driver="gesdd"):
        if lapack_driver == "gesdd":
            raise np.linalg.LinAlgError("SVD did not converge")
        return plain(matrix, full_matrices=full_matrices, lapack_driver=lapack_driver)

    monkeypatch.setattr(algebra.linalg, "svd", fails)
    assert_allclose(svd(a)[1], expected)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_many_equal_canonical_correlations_are_decomposed(threads):
    """With n < d_x + d_y canonical correlations are exactly 1: seen to defeat LAPACK's divide and conquer."""
    import subprocess
    import sys

    code = (
        "import numpy as np; from congruence.maps.matching import weak_mcc;"
        "x, y = np.random.default_rng(0).normal(size=(2, 800, 512)); assert weak_mcc(x, y) > 0.999"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"OPENBLAS_NUM_THREADS": threads, "PATH": ""})


@pytest.mark.parametrize("shape", [(5, 5), (6, 4)])
def test_decompositions_elsewhere_are_the_same(rng, monkeypatch, shape):
    """On the device that is here, since the way is the same to all."""
    pytest.importorskip("torch")
    matrix = rng.normal(size=shape)
    monkeypatch.setattr("congruence.rows.algebra.FAR", 2)
    with decomposing_on("meta"), pytest.raises(NotImplementedError):  # it does go there
        eigh(matrix @ matrix.T)
    with decomposing_on("cpu:0"):
        u, s, vt = svd(matrix, full_matrices=False)
        values, vectors = eigh(matrix @ matrix.T)
    assert_allclose(u * s @ vt, matrix, atol=1e-12)
    assert_allclose(vectors * values @ vectors.T, matrix @ matrix.T, atol=1e-12)
    assert (np.diff(values) >= 0).all()
