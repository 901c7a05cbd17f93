import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ortho_group
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from congruence import Aligner
from congruence.errors import InputError, NotInvertibleError


@parametrize_with_checks([Aligner(), Aligner("linear"), Aligner("permutation")])
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def test_it_maps_there_and_back(rng):
    x = rng.normal(size=(50, 3))
    y = 2 * x @ ortho_group.rvs(3, random_state=0) + 1
    aligner = Aligner("similarity").fit(x, y)
    assert_allclose(aligner.transform(x), y, atol=1e-10)
    assert_allclose(aligner.inverse_transform(y), x, atol=1e-10)
    assert_allclose(aligner.score(x, y), 1)


def test_the_score_is_the_share_of_variance_explained(rng):
    x, y = rng.normal(size=(2, 50, 3))
    aligner = Aligner("linear").fit(x, y)
    expected = 1 - np.square(aligner.transform(x) - y).sum() / np.square(y - y.mean(0)).sum()
    assert_allclose(aligner.score(x, y), expected)
    assert np.isnan(aligner.score(x, np.ones((50, 3))))


def test_widths_may_differ(rng):
    x, y = rng.normal(size=(50, 3)), rng.normal(size=(50, 5))
    assert Aligner("rigid").fit(x, y).transform(x).shape == (50, 5)
    assert Aligner("rigid").fit(y, x).score(y, x) < 1


def test_it_works_in_a_pipeline_with_pandas_output(rng):
    pytest.importorskip("pandas")
    x, y = rng.normal(size=(2, 50, 3))
    pipeline = make_pipeline(StandardScaler(), Aligner("rigid")).set_output(transform="pandas")
    assert list(pipeline.fit(x, y).transform(x).columns) == ["aligner0", "aligner1", "aligner2"]


def test_a_map_without_inverse_says_so(rng):
    x, y = rng.normal(size=(50, 3)), rng.normal(size=(50, 1))
    with pytest.raises(NotInvertibleError, match="rank 1 of 3"):
        Aligner("linear").fit(x, y).inverse_transform(y)


def test_targets_of_another_shape_are_refused(rng):
    x, y = rng.normal(size=(2, 50, 3))
    aligner = Aligner("rigid").fit(x, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        aligner.score(x, y[:1])
    with pytest.raises(InputError, match="y must have at most 3 columns, the width of the map; got 6"):
        aligner.score(x, np.hstack([y, y]))


def test_a_frame_with_numbered_columns_gives_no_warning(rng):
    pd = pytest.importorskip("pandas")
    x, y = (pd.DataFrame(rng.normal(size=(50, 3))) for _ in range(2))
    aligner = Aligner().fit(x, y)  # warnings are errors in this suite
    assert_allclose(aligner.transform(x), aligner.transform(x.to_numpy()))
    assert not hasattr(aligner, "feature_names_in_")
