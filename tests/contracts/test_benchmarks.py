"""The benchmarks run; what they measure is not looked at here."""

import csv
import runpy
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def run(monkeypatch):
    """Run a benchmark as a script, in this process: loading the libraries would take longer than most of them."""

    def run(name, *arguments):
        monkeypatch.syspath_prepend(BENCHMARKS)
        monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / name), *map(str, arguments)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # small sizes do not converge
            runpy.run_path(str(BENCHMARKS / name), run_name="__main__")

    return run


def test_the_benchmark_of_compare_runs_beside_its_peers(tmp_path, run):
    run("compare.py", "--quick", "--out", tmp_path / "compare.csv")
    with (tmp_path / "compare.csv").open() as handle:
        rows = {row["what"]: row for row in csv.DictReader(handle)}
    for what in ("compare, without ica", "compare, default", "compare, all groups", "scipy", "shape metric"):
        assert float(rows[what]["cold_cpu_s"]) > float(rows[what]["cpu_s"]) > 0


def test_the_benchmark_of_check_runs_and_the_exit_codes_are_right(tmp_path, run):
    run("check.py", "--quick", "--out", tmp_path / "check.csv")
    with (tmp_path / "check.csv").open() as handle:
        codes = {(row["what"], row["allow"]): row["exit_code"] for row in csv.DictReader(handle)}
    assert codes["float16", "identity"] == codes["rotated", "similarity"] == "0"
    assert codes["rotated", "identity"] == codes["changed", "identity"] == codes["changed", "similarity"] == "1"


def test_the_benchmark_of_parts_runs(tmp_path, run):
    run("parts.py", "--quick", "--out", tmp_path / "parts.csv")
    with (tmp_path / "parts.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["rows"], row["exit_code"]) for row in rows] == [("1200", "0")] * 2
    assert all(10 < float(row["anonymous_mb"]) < 2000 for row in rows)


def test_the_benchmark_of_compare_on_a_gpu_runs_without_one(tmp_path, run):
    run("compare.py", "--gpu", "--quick", "--out", tmp_path / "gpu.csv")
    with (tmp_path / "gpu.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert len({row["linear_held_out"] for row in rows}) == 1


def test_the_benchmark_of_translate_runs(tmp_path, run):
    run("translate.py", "--quick", "--out", tmp_path / "translate.csv")
    with (tmp_path / "translate.csv").open() as handle:
        assert [row["what"] for row in csv.DictReader(handle)] == ["translate apply / bare product"]


def test_the_benchmark_of_queries_runs(tmp_path, run):
    run("translate_apply.py", "--quick", "--out", tmp_path / "apply.csv")
    with (tmp_path / "apply.csv").open() as handle:
        assert {row["batch"] for row in csv.DictReader(handle)} == {"1", "4"}


def test_the_benchmark_of_maps_for_translation_runs(tmp_path, run):
    run("translate_maps.py", "--quick", "--out", tmp_path / "maps.csv")
    with (tmp_path / "maps.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    peers = {"Procrustes", "least squares", "RidgeCV", "residual network", "local maps"}
    assert {row["method"] for row in rows} == {"ours", *peers}
    assert all(0 < float(row["recall_10"]) <= 1 for row in rows)


def test_the_benchmark_of_unpaired_translation_runs_beside_its_peer(tmp_path, run):
    run("translate_unpaired.py", "--quick", "--out", tmp_path / "unpaired.csv")
    with (tmp_path / "unpaired.csv").open() as handle:
        r2 = {row["method"]: float(row["r2"]) for row in csv.DictReader(handle)}
    assert r2["congruence, unpaired"] > 0.9
    assert set(r2) == {"paired rotation", "congruence, unpaired", "mini-vec2vec re-stated"}


def test_the_verdicts_of_unpaired_translation_are_recorded(tmp_path, run):
    run("translate_unpaired.py", "--quick", "--verdicts", "--case", "destroyed", "--out", tmp_path / "verdicts.csv")
    with (tmp_path / "verdicts.csv").open() as handle:
        assert [(row["case"], row["status"]) for row in csv.DictReader(handle)] == [("structure destroyed", "unknown")]


def test_the_benchmark_of_independent_components_runs(tmp_path, run):
    pytest.importorskip("picard")
    run("ica.py", "--quick", "--out", tmp_path / "ica.csv")
    with (tmp_path / "ica.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 3
    assert all(float(row["amari"]) < 0.1 for row in rows)


def test_the_benchmark_of_passes_runs(tmp_path, run):
    run("ica_passes.py", "--quick", "--out", tmp_path / "passes.csv")
    with (tmp_path / "passes.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert {row["method"] for row in rows} == {"fastica", "prototype", "frozen", "pairwise"}
    assert all(float(row["firm"]) <= float(row["gradient"]) for row in rows)


def test_the_benchmark_of_wide_mixtures_runs(tmp_path, run):
    run("ica_width.py", "--quick", "--out", tmp_path / "width.csv")
    with (tmp_path / "width.csv").open() as handle:
        assert {row["start"] for row in csv.DictReader(handle)} == {"random", "spectral"}


def test_the_benchmark_of_metrics_runs_and_agrees_with_its_peer(tmp_path, run):
    run("metrics.py", "--quick", "--out", tmp_path / "metrics.csv")
    with (tmp_path / "metrics.csv").open() as handle:
        rows = {(row["metric"], row["part"]): row for row in csv.DictReader(handle)}
    assert float(rows["infomec", "information"]["largest_difference"]) < 1e-8
    assert float(rows["infomec", "readouts"]["largest_difference"]) < 1e-2
    assert ("infomec", "whole") in rows


def test_the_benchmark_of_dci_runs_and_both_models_rank_the_codes_alike(tmp_path, run):
    pytest.importorskip("lightgbm")
    run("dci.py", "--quick", "--out", tmp_path / "dci.csv")
    with (tmp_path / "dci.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [row["angle"] for row in rows] == ["0", "15", "30", "45"]
    for model in ("boosting", "lightgbm"):
        scores = [float(row[f"{model}_disentanglement"]) for row in rows]
        assert scores == sorted(scores, reverse=True)


def test_the_benchmark_of_many_rows_runs(tmp_path, run):
    pytest.importorskip("distributed")
    run("ica_scaling.py", "--quick", "--out", tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["engine"], row["passes"]) for row in rows] == [("one process", "5"), ("dask", "5")]


def test_the_benchmark_of_drawing_runs(tmp_path, run):
    pytest.importorskip("torch")
    run("rooms.py", "--quick", "--out", tmp_path / "rooms.csv")
    with (tmp_path / "rooms.csv").open() as handle:
        rows = [row for row in csv.DictReader(handle) if row["device"] == "cpu"]
    assert [(row["data"], row["factors"]) for row in rows] == [
        ("rooms", "grid"), ("rooms", "continuous"), ("sprites", "grid"), ("sprites", "continuous"),
    ]  # fmt: skip
    assert all(int(row["largest_difference"]) == 0 for row in rows)


def test_the_benchmark_of_decoders_runs_and_agrees_with_its_peer(tmp_path, run):
    pytest.importorskip("torch")
    run("decoder.py", "--quick", "--out", tmp_path / "decoder.csv")
    with (tmp_path / "decoder.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [row["points"] for row in rows] == ["60"] * 3
    assert all(float(row["largest_difference"]) < 1e-5 for row in rows)


def test_the_benchmark_of_ensembles_runs_and_members_end_where_they_would_alone(tmp_path, run):
    pytest.importorskip("torch")
    run("ensemble.py", "--quick", "--out", tmp_path / "ensemble.csv")
    with (tmp_path / "ensemble.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [row["steps"] for row in rows] == ["4", "4"]
    assert float(rows[0]["largest_difference"]) < 1e-6


def test_the_benchmark_of_training_runs_and_both_loops_learn_alike(tmp_path, run):
    pytest.importorskip("torch")
    run("training.py", "--quick", "--out", tmp_path / "training.csv")
    with (tmp_path / "training.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["what"], row["precision"]) for row in rows] == [
        ("step", "float32"),
        ("step", "bfloat16"),
        ("curves", "bfloat16"),
    ]
    assert rows[2]["agree"] == "True"


def test_the_benchmark_of_hidden_states_runs_and_none_is_wrong(tmp_path, run):
    run("hidden_states.py", "--quick", "--out", tmp_path / "states.csv")
    with (tmp_path / "states.csv").open() as handle:
        row = next(csv.DictReader(handle))
    assert (row["structures"], row["wrong"]) == ("2", "0")


def test_the_benchmark_of_deconfounding_runs(tmp_path, run):
    pytest.importorskip("lightgbm")
    run("deconfound.py", "--quick", "--jobs", "1", "--out", tmp_path / "d.csv")
    with (tmp_path / "d.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [int(row["fits"]) for row in rows] == [0, 0, 72]  # six genes, three folds, four conditions


def test_the_benchmark_of_mechanisms_runs(tmp_path, run):
    pytest.importorskip("torch")
    run("mechanism.py", "--quick", "--out", tmp_path / "mechanism.csv")
    with (tmp_path / "mechanism.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["decoder"], row["what"]) for row in rows] == [
        ("dense", "order 2"), ("dense", "orders 2 and 3"),
        ("convolutional", "order 2"), ("convolutional", "orders 2 and 3"),
    ]  # fmt: skip
    assert all("D:fails" in row["verdicts"] for row in rows)


def test_the_benchmark_of_extraction_runs(tmp_path, run):
    pytest.importorskip("torch")
    run("extract.py", "--quick", "--out", tmp_path / "extract.csv")
    with (tmp_path / "extract.csv").open() as handle:
        row = next(csv.DictReader(handle))
    assert (row["rows"], row["batch"]) == ("32", "64")


@pytest.mark.parametrize("section", ["copies", "evaluate_rows", "features"])
def test_the_benchmark_of_verdicts_runs_and_its_limits_are_computed(tmp_path, run, section):
    """Cells of every section are simulated by the tests of their verb (`test_calibration.py` and `test_halves.py`)."""
    run("calibration.py", "--quick", "--only", section, "--out", tmp_path / "calibration.csv")
    with (tmp_path / "calibration.csv").open() as handle:
        rows = [row for row in csv.DictReader(handle) if row["count"]]
    assert {row["section"] for row in rows} == {section}
    for row in rows:
        assert float(row["low"]) <= float(row["rate"]) <= float(row["high"])
        assert bool(row["met"]) == bool(row["limit"])
        if row["limit"] == "<= 0.05":
            assert row["met"] == ("yes" if row["count"] == "0" else "no")


def test_the_tables_of_error_rates_are_those_of_the_csv(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import calibration

    page = calibration.PAGE.read_text()
    assert calibration.render(page, calibration.read(calibration.RESULTS)) == page
    assert page.count("<!-- table: ") == page.count("<!-- end of table -->") == 3 + len(calibration.SECTIONS)


def test_the_benchmark_of_the_ica_lens_runs(tmp_path, run):
    run("ica_lens.py", "--quick", "--out", tmp_path / "lens.csv")
    with (tmp_path / "lens.csv").open() as handle:
        rows = {(row["rows"], row["k"], row["method"]): row for row in csv.DictReader(handle)}
    assert float(rows["mixture", "6", "congruence, default"]["amari"]) < 0.1
    assert float(rows["language model", "8", "congruence, default"]["agreement"]) <= 1


def test_the_benchmark_of_features_runs(tmp_path, run):
    run("features.py", "--quick", "--out", tmp_path / "features.csv")
    with (tmp_path / "features.csv").open() as handle:
        rows = {row["what"]: row for row in csv.DictReader(handle)}
    assert float(rows["match_features"]["found"]) == float(rows["scipy, no null"]["found"])


def test_the_page_of_benchmarks_lists_what_a_peer_does_better():
    page = runpy.run_path(str(BENCHMARKS.parent / "docs" / "render_benchmarks.py"))
    text = page["on_page_markdown"]("<!-- lost -->", SimpleNamespace(file=SimpleNamespace(src_uri="benchmarks.md")))
    lines = [line.split(" | ") for line in text.splitlines()[2:]]
    assert len(lines) > 10
    for *_, better in lines:
        number, *times = better.removesuffix(" |").split()
        assert float(number) <= (1 if times else 0)


def test_the_benchmark_of_controls_has_no_signal_in_the_null_task(tmp_path, run, data_folder):
    run("normalisation_controls.py", "--quick", "--jobs", "1", "--out", tmp_path / "controls.csv")
    with (tmp_path / "controls.csv").open() as handle:
        rows = {(row["task"], row["condition"], row["reference"]): row for row in csv.DictReader(handle)}
    assert len(rows) == 14
    assert float(rows["null", "tvn", "other"]["low"]) < 0.5 < float(rows["null", "tvn", "other"]["high"])
    assert float(rows["null", "tvn", "scored"]["low"]) > 0.5


def test_the_benchmark_of_rotations_has_no_efficiency_where_rows_are_few(tmp_path, run):
    run("ica_rotation.py", "--quick", "--jobs", "1", "--out", tmp_path / "rotation.csv")
    with (tmp_path / "rotation.csv").open() as handle:
        rows = {row["changed"]: row for row in csv.DictReader(handle)}
    assert len(rows) == 5
    for row in rows.values():  # 4 rows for each dimension
        assert float(row["rotation"]) < 0.2 < float(row["permutation"])
        assert float(row["efficiency"]) < 0.5
        assert row["recovers"] == "no"


def test_the_benchmark_of_screens_has_a_row_for_each_condition_and_target(tmp_path, run, data_folder):
    run("screens.py", "--quick", "--out", tmp_path / "screens.csv")
    with (tmp_path / "screens.csv").open() as handle:
        rows = {(row["condition"], row["target"]): row for row in csv.DictReader(handle)}
    means = {condition: float(row["variance"]) for (condition, target), row in rows.items() if target == "all"}
    assert set(means) == {"base", "whitened", "ica", "standardised", "tvn"}
    assert means["standardised"] < means["tvn"] < means["base"]
    assert len(rows) % len(means) == 0


def test_the_benchmark_of_similarities_rises_with_the_width_only_in_sample(tmp_path, run):
    run("similarities.py", "--quick", "--out", tmp_path / "similarities.csv")
    with (tmp_path / "similarities.csv").open() as handle:
        rows = {int(row["d"]): row for row in csv.DictReader(handle)}
    assert float(rows[8]["weak_mcc"]) < float(rows[64]["weak_mcc"]) < 1
    assert abs(float(rows[64]["cka"])) < 0.05


def test_the_benchmark_of_examples_measures_both_verbs(tmp_path, run, data_folder):
    run("examples.py", "--quick", "--out", tmp_path / "examples.csv")
    with (tmp_path / "examples.csv").open() as handle:
        rows = {row["what"]: float(row["value"]) for row in csv.DictReader(handle)}
    assert rows["recall@10, untranslated"] < rows["recall@10"] < 1
    assert rows["identified"] <= rows["components"]
