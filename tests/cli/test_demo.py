import json
import sys

import numpy as np
import pytest

from congruence.cli import main
from congruence.experiments.data.digits import digits
from congruence.experiments.training.small_autoencoders import train_autoencoder
from congruence.tables import read_table


def test_the_demo_trains_compares_and_reports(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["congruence", "demo", "--out", str(tmp_path / "d"), "--seeds", "2", "--epochs", "3"]
    )
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    printed = capsys.readouterr()
    assert "seed0" in printed.out
    assert printed.err == (
        f"codes of each seed: {tmp_path / 'd'}; open the report {tmp_path / 'd' / 'report.html'} in a browser\n"
    )
    result = json.loads((tmp_path / "d" / "result.json").read_text())
    assert [run["name"] for run in result["numbers"]["runs"]] == ["seed0", "seed1"]
    table = read_table(tmp_path / "d" / "seed0.parquet")
    assert (table.n, table.d) == (1797, 8)
    assert table.ids[0] == "digit0000"
    assert "<html" in (tmp_path / "d" / "report.html").read_text()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["congruence", "demo", "--out", str(tmp_path / "file" / "d")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "cannot make the folder" in capsys.readouterr().err


def test_the_digits_need_no_download():
    images, labels = digits()
    assert images.shape == (1797, 64)
    assert images.dtype == np.float32
    assert (images.min(), images.max()) == (0, 1)
    assert set(labels) == set(range(10))


def test_a_seed_decides_the_training():
    images, _ = digits()
    options = {"latent": 3, "epochs": 2}
    codes, _ = train_autoencoder(images[:200], seed=1, **options)
    again, _ = train_autoencoder(images[:200], seed=1, **options)
    other, _ = train_autoencoder(images[:200], seed=2, **options)
    assert codes.shape == (200, 3)
    assert codes.dtype == np.float32
    np.testing.assert_array_equal(codes, again)
    assert np.abs(codes - other).max() > 0.1


def test_training_lowers_the_reconstruction_error():
    images, _ = digits()
    seen = []
    _, short = train_autoencoder(images[:500], epochs=1)
    _, long = train_autoencoder(images[:500], epochs=30, progress=lambda epoch, loss: seen.append(epoch))
    assert long < 0.7 * short
    assert seen == list(range(1, 31))
