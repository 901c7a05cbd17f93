import warnings

import numpy as np
import pytest

from congruence import ICA, compare
from congruence.errors import FewRowsWarning, InputError, PairedByPositionWarning, Terminated, one_sentence
from congruence.tables.table import Table


def test_a_warning_points_to_the_line_that_called_the_package(rng):
    x, y = rng.normal(size=(2, 8, 3))
    with pytest.warns(FewRowsWarning) as caught:
        compare(x, y, groups=["rigid"], nulls=0, bootstrap=0)
    assert {w.filename for w in caught} == {__file__}
    with pytest.warns(PairedByPositionWarning) as caught:
        compare(Table(np.tile(x, (5, 1)), "x", ids=np.arange(40)), np.tile(y, (5, 1)), groups=["rigid"], nulls=0)
    assert __file__ in {w.filename for w in caught}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ICA(n_components=5, check=False).fit(x)
    assert caught
    assert {w.filename for w in caught} == {__file__}


def test_keywords_of_scikit_learn_have_a_hint(rng):
    x = rng.normal(size=(60, 2))
    with pytest.raises(TypeError, match=r"'random_state'; did you mean 'seed'\?"):
        compare(x, x, random_state=0)
    with pytest.raises(TypeError, match=r"'n_splits'; did you mean 'folds'\?"):
        compare(x, x, n_splits=3)


def test_a_panic_or_an_exit_is_one_sentence_and_an_interruption_is_none():
    panic = type("PanicException", (BaseException,), {})
    failure = "the file cannot be opened"
    with pytest.raises(InputError, match="the file cannot be opened: SystemExit: 5"), one_sentence(failure):
        raise SystemExit(5)
    with pytest.raises(Terminated), one_sentence(failure):
        raise Terminated
    with pytest.raises(InputError, match="the file cannot be opened: PanicException: damaged"), one_sentence(failure):
        raise panic("damaged")
    with pytest.raises(KeyboardInterrupt), one_sentence(failure):
        raise KeyboardInterrupt
