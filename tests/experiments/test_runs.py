import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence._saved import read_tensors, write_tensors
from congruence.errors import InputError, TableError
from congruence.experiments.runs import open_run, start_run
from congruence.tables import read_table

CONFIG = {"leak": 0.3, "widths": [8, 4], "data": "digits"}


@pytest.fixture
def run(tmp_path):
    return start_run(tmp_path / "all" / "one", CONFIG)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_all_that_is_written_comes_back(run, rng):
    codes, factors = rng.normal(size=(7, 3)).astype(np.float32), {"size": rng.normal(size=7), "digit": np.arange(7)}
    weights = {"encoder.0": rng.normal(size=(4, 8)), "steps": np.array(12)}
    run.log(step=1, loss=0.5)
    run.log(step=2, loss=float("nan"), note="odd")
    run.write_weights(weights)
    assert not run.finished
    run.write_latents(codes, factors, ids=[f"r{i}" for i in range(7)])

    again = open_run(run.folder)
    assert again.finished
    assert again.config == CONFIG
    assert again.metrics() == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None, "note": "odd"}]
    for name, value in again.weights().items():
        assert_array_equal(value, weights[name])
        assert value.shape == weights[name].shape
    table = again.latents()
    assert table.name == "one"
    assert_array_equal(table.values, codes)
    assert_array_equal(table.ids, [f"r{i}" for i in range(7)])
    assert {name: column.tolist() for name, column in table.metadata.items()} == {
        name: column.tolist() for name, column in factors.items()
    }
    files = "config.json environment.json latents.parquet metrics.jsonl weights.safetensors"
    assert names(run.folder) == files.split()


def test_draws_come_from_the_posteriors_of_the_codes(run, rng):
    codes, deviations = rng.normal(size=(5000, 2)), np.array([0.5, 2.0]) * np.ones((5000, 2))
    run.write_latents(codes)
    assert run.draws() is None  # only means are stored
    run.write_posterior(deviations.astype(np.float32))
    noise = (run.draws(seed=3) - codes) / deviations
    assert_allclose(noise.mean(0), 0, atol=0.06)
    assert_allclose(np.cov(noise.T), np.eye(2), atol=0.08)
    assert_array_equal(run.draws(seed=3), run.draws(seed=3))
    assert not np.array_equal(run.draws(seed=3), run.draws(seed=4))
    run.write_posterior(deviations[:7])
    with pytest.raises(InputError, match=r"deviations of shape \(5000, 2\); got \(7, 2\)"):
        run.draws()
    run.write_posterior(np.where(codes > 2, np.inf, deviations))
    with pytest.raises(InputError, match=r"posterior.safetensors must have deviations that are finite"):
        run.draws()


def test_the_environment_names_versions_and_no_host(run):
    told = open_run(run.folder).environment()
    assert told["packages"]["numpy"] == np.__version__
    assert set(told) == {"python", "system", "machine", "processors", "packages"}


def test_the_same_config_goes_on_and_another_is_refused(run):
    run.log(step=1)
    assert start_run(run.folder, CONFIG).metrics() == [{"step": 1}]
    with pytest.raises(InputError, match=r"another config \(leak is 0.3, not 0.4\); give another folder"):
        start_run(run.folder, CONFIG | {"leak": 0.4})
    with pytest.raises(InputError, match=r"\(more is null, not 1\)"):
        start_run(run.folder, CONFIG | {"more": 1})


def test_a_last_line_that_a_crash_cut_short_is_left_out_and_then_cut_off(run):
    run.log(step=1)
    with (run.folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "los' + b"x" * 5000)
    assert run.metrics() == [{"step": 1}]
    run.log(step=2)
    assert run.metrics() == [{"step": 1}, {"step": 2}]
    (run.folder / "metrics.jsonl").write_bytes(b'{"st')
    assert run.metrics() == []
    run.log(step=1)
    assert run.metrics() == [{"step": 1}]


def test_lines_after_a_checkpoint_are_dropped(run):
    run.log(note="began")
    for step in range(5):
        run.log(step=step)
    run.rewind("step", 2)
    assert run.metrics() == [{"note": "began"}, {"step": 0}, {"step": 1}, {"step": 2}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{oops\n", "line 2 of a log from .*metrics.jsonl, .* is not JSON"),
        (b"3\n", "line 2 .* not a JSON object"),
        (b'{"step": [1]}\n', r"line 2 of .*metrics.jsonl is damaged: its step is \[1\]"),
        (b'{"step": null}\n', "its step is null"),
        (b'{"loss": "x"}\n', 'its loss is "x"'),
        (b'{"loss": 1e999}\n', "its loss is Infinity"),
        (b'{"psnr": NaN}\n', "its psnr is NaN"),
        (b'{"ended": ["steps"]}\n', "its ended is"),
        (b'{"my": {}}\n', "its my is {}"),
        (b'{"my": %s}\n' % (b"9" * 400), "its my is 99"),
    ],
)
def test_damage_inside_the_metrics_is_refused(line, message, run):
    run.log(step=1)
    with (run.folder / "metrics.jsonl").open("ab") as file:
        file.write(line + b'{"step": 3}\n')
    with pytest.raises(InputError, match=message):
        run.metrics()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "congruence ru', "config.json, it may be damaged: it is not JSON"),
        ("[1]", "must hold a JSON object"),
        ('{"kind": "a model", "config": {}}', "was not written by congruence: its kind is 'a model'"),
        ('{"kind": "congruence run", "version": 9, "config": {}}', "is a run of version 9; this congruence reads 1"),
        ("[" * 100_000, "config.json, it may be damaged: it is nested too deeply"),
    ],
)
def test_truncated_and_foreign_folders_are_refused(text, message, run):
    (run.folder / "config.json").write_text(text)
    with pytest.raises(InputError, match=message):
        open_run(run.folder)
    with pytest.raises(InputError, match=message):
        start_run(run.folder, CONFIG)
    assert (run.folder / "config.json").read_text() == text


def test_folders_that_are_no_runs_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no run folder .*nothing"):
        open_run(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"has no config.json, so it is not a run folder"):
        open_run(tmp_path)
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"has thesis.txt but no config.json, so it is not a run"):
        start_run(tmp_path, CONFIG)
    with pytest.raises(InputError, match=r"cannot make the folder .*thesis.txt"):
        start_run(tmp_path / "thesis.txt", CONFIG)
    assert names(tmp_path) == ["thesis.txt"]


def test_a_start_that_was_killed_before_its_config_is_taken_up(run):
    (run.folder / "config.json").unlink()
    assert start_run(run.folder, CONFIG).config == CONFIG


def test_a_config_that_is_not_json_is_refused_before_a_folder_is_made(tmp_path):
    with pytest.raises(InputError, match="config must contain only values that JSON can represent"):
        start_run(tmp_path / "a", {"model": object()})
    assert names(tmp_path) == []


def test_truncated_weights_and_latents_are_refused_and_nothing_is_unpickled(run, rng):
    with pytest.raises(InputError, match=r"there is no .*weights.safetensors; the training may not be finished"):
        run.weights()
    run.write_weights({"a": rng.normal(size=(20, 20))})
    run.write_latents(rng.normal(size=(20, 2)))
    for name, error in (("weights.safetensors", InputError), ("latents.parquet", TableError)):
        path = run.folder / name
        for content in (path.read_bytes()[:-100], b"\x80\x04cposix\nsystem\n(S'exit 1'\ntR."):
            path.write_bytes(content)
            with pytest.raises(error, match=name):
                getattr(run, name.partition(".")[0])()


def test_arrays_keep_a_header(tmp_path):
    write_tensors(tmp_path / "a.safetensors", {"x": np.ones(2)}, {"step": 3})
    arrays, header = read_tensors(tmp_path / "a.safetensors", "arrays")
    assert arrays["x"].tolist() == [1, 1]
    assert header == {"step": 3}


def test_the_folder_of_a_training_is_read_as_a_table_of_its_codes(tmp_path, rng):
    run = start_run(tmp_path / "ae-0", {"model": "ae"})
    codes = rng.normal(size=(5, 3))
    run.write_latents(codes, {"shape": np.arange(5)})
    table = read_table(tmp_path / "ae-0")
    assert table.name == "ae-0"
    assert_array_equal(table.values, codes)
    with pytest.raises(TableError, match="without embedding files; it holds the folders ae-0"):
        read_table(tmp_path)


def test_imaginary_parts_of_weights_are_not_dropped(run):
    run.write_weights({"weight": np.array([1 + 2j], np.complex64)})
    with pytest.raises(InputError, match=r"weights\.safetensors, it may be damaged: data type 'complex64'"):
        run.weights()
