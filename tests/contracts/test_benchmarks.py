"""The benchmarks run; what they measure is not looked at here."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_alignment_benchmark_runs(tmp_path):
    command = [sys.executable, BENCHMARKS / "align.py", "--quick", "--out", tmp_path / "align.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "align.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [row["what"] for row in rows] == ["compare / (procrustes + lstsq)", "translate apply / bare product"]


def test_the_gpu_benchmark_runs_without_a_gpu(tmp_path):
    command = [sys.executable, BENCHMARKS / "gpu.py", "--sizes", "400x4", "--out", tmp_path / "gpu.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "gpu.csv").open() as handle:
        assert next(csv.DictReader(handle))["diameter_exact"] == "True"


def test_the_benchmark_of_independent_components_runs(tmp_path):
    pytest.importorskip("picard")
    command = [sys.executable, BENCHMARKS / "ica.py", "--quick", "--out", tmp_path / "ica.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "ica.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 3
    assert all(float(row["amari"]) < 0.1 for row in rows)


def test_the_benchmark_of_passes_runs(tmp_path):
    command = [sys.executable, BENCHMARKS / "ica_passes.py", "--quick", "--out", tmp_path / "passes.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "passes.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert {row["method"] for row in rows} == {"fastica", "prototype", "abstaining", "pairwise"}
    assert all(float(row["firm"]) <= float(row["gradient"]) for row in rows)


def test_the_benchmark_of_metrics_runs_and_agrees_with_its_peer(tmp_path):
    command = [sys.executable, BENCHMARKS / "metrics.py", "--quick", "--out", tmp_path / "metrics.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "metrics.csv").open() as handle:
        rows = {(row["metric"], row["part"]): row for row in csv.DictReader(handle)}
    assert float(rows["infomec", "information"]["largest_difference"]) < 1e-8
    assert float(rows["infomec", "readouts"]["largest_difference"]) < 1e-2
    assert ("infomec", "whole") in rows


def test_the_benchmark_of_dci_runs_and_both_models_rank_the_codes_alike(tmp_path):
    pytest.importorskip("lightgbm")
    command = [sys.executable, BENCHMARKS / "dci.py", "--quick", "--out", tmp_path / "dci.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "dci.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [row["angle"] for row in rows] == ["0", "15", "30", "45"]
    for model in ("boosting", "lightgbm"):
        scores = [float(row[f"{model}_disentanglement"]) for row in rows]
        assert scores == sorted(scores, reverse=True)


def test_the_benchmark_of_many_rows_runs(tmp_path):
    pytest.importorskip("distributed")
    command = [sys.executable, BENCHMARKS / "ica_scaling.py", "--quick", "--out", tmp_path / "rows.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "rows.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["engine"], row["passes"]) for row in rows] == [("one process", "5"), ("dask", "5")]


def test_the_benchmark_of_drawing_runs(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, BENCHMARKS / "rooms.py", "--quick", "--out", tmp_path / "rooms.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "rooms.csv").open() as handle:
        rows = [row for row in csv.DictReader(handle) if row["device"] == "cpu"]
    assert [(row["data"], row["factors"]) for row in rows] == [
        ("rooms", "grid"), ("rooms", "continuous"), ("sprites", "grid"), ("sprites", "continuous"),
    ]  # fmt: skip
    assert all(int(row["largest_difference"]) == 0 for row in rows)


def test_the_benchmark_of_decoders_runs_and_agrees_with_its_peer(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, BENCHMARKS / "decoder.py", "--quick", "--out", tmp_path / "decoder.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "decoder.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [row["points"] for row in rows] == ["60"] * 3
    assert all(float(row["largest_difference"]) < 1e-5 for row in rows)


def test_the_benchmark_of_ensembles_runs_and_members_end_where_they_would_alone(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, BENCHMARKS / "ensemble.py", "--quick", "--out", tmp_path / "ensemble.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "ensemble.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [row["steps"] for row in rows] == ["4", "4"]
    assert float(rows[0]["largest_difference"]) < 1e-6


def test_the_benchmark_of_training_runs_and_both_loops_learn_alike(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, BENCHMARKS / "training.py", "--quick", "--out", tmp_path / "training.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "training.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["what"], row["precision"]) for row in rows] == [
        ("step", "float32"),
        ("step", "bfloat16"),
        ("curves", "bfloat16"),
    ]
    assert rows[2]["agree"] == "True"


def test_the_benchmark_of_hidden_states_runs_and_none_is_wrong(tmp_path):
    command = [sys.executable, BENCHMARKS / "hidden_states.py", "--quick", "--out", tmp_path / "states.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "states.csv").open() as handle:
        row = next(csv.DictReader(handle))
    assert (row["structures"], row["wrong"]) == ("2", "0")


def test_the_benchmark_of_deconfounding_runs(tmp_path):
    pytest.importorskip("lightgbm")
    command = [sys.executable, BENCHMARKS / "deconfound.py", "--quick", "--jobs", "1", "--out", tmp_path / "d.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "d.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [int(row["fits"]) for row in rows] == [0, 0, 72]  # six genes, three folds, four conditions
