import csv
import json
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from congruence.cli import main
from congruence.metrics._registry import METRICS

QUICK = ["--metrics", "mig", "--resamples", "0", "--nulls", "2", "--no-structural"]


@pytest.fixture
def evaluate(tmp_path, monkeypatch, capsys):
    """Run `congruence evaluate` with arguments beside some files; return exit code, stdout and stderr."""
    rng = np.random.default_rng(0)
    n = 200
    shape, size, lost = rng.choice(["ball", "cone", "cube"], n), rng.uniform(size=n), rng.normal(size=n)
    codes = np.column_stack([size, np.unique(shape, return_inverse=True)[1]]) + 0.02 * rng.normal(size=(n, 2))
    ids = [f"im{i:03}" for i in range(n)]
    monkeypatch.chdir(tmp_path)
    np.save("codes.npy", codes)
    truth = list(zip(ids, shape, size, lost, strict=True))
    write_csv("factors.csv", ["shape", "size", "lost"], [row[1:] for row in truth])
    write_csv("shuffled.csv", ["image", "shape", "size", "lost"], [truth[i] for i in rng.permutation(n)[:190]])
    write_csv("holes.csv", ["shape", "size"], [["" if i in (3, 5) else row[1], row[2]] for i, row in enumerate(truth)])
    columns = {"image": ids, "z0": codes[:, 0], "z1": codes[:, 1]}
    pq.write_table(pa.table(columns), "codes.parquet")
    beside = {"shape": shape, "Metadata_size": size, "plate": [f"p{i // 20}" for i in range(n)]}
    pq.write_table(pa.table(columns | beside), "all.parquet")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["congruence", "evaluate", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, printed.out, printed.err

    return run


def write_csv(path, header, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def read_json(path="r.json"):
    with open(path) as file:
        return json.load(file)


def numbers(path="r.json"):
    return read_json(path)["numbers"]


def test_the_screen_says_first_what_was_found_and_what_is_missing(evaluate):
    options = ["--metrics", "mig,mcc", "--resamples", "4", "--nulls", "2"]
    code, out, _ = evaluate(
        "codes.npy", "factors.csv", *options, "--json", "r.json", "--csv", "r.csv", "--report", "r.html"
    )
    assert code == 0
    first = out.splitlines()[0]
    assert first == "2 of 3 factors have a code of their own."
    assert out.splitlines()[1].startswith("Not encoded: lost.")
    assert re.findall(r"^ .*?\((m\w+)\)", out, re.MULTILINE) == ["mig", "mcc", "mcc_spearman", "mcc_weak"]
    assert "Distance to the factors" in out
    assert "note: Rows of codes and factors were paired by position." in out
    result = read_json()
    assert result["verdict"] == "2 of 3 factors have a code of their own. Not encoded: lost."
    assert result["numbers"]["unexplained"] == ["lost"]
    assert result["settings"]["command"].startswith("congruence evaluate codes.npy factors.csv")
    with open("r.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["score"] for row in rows] == ["mig", "mcc", "mcc_spearman", "mcc_weak"]
    assert float(rows[1]["low"]) <= float(rows[1]["value"]) <= float(rows[1]["high"])
    assert rows[0]["low"] == ""
    assert rows[0]["no_interval"]
    with open("r.html") as file:
        assert "<html" in file.read()


def test_rows_are_paired_by_id(evaluate):
    code, out, _ = evaluate("codes.parquet", "shuffled.csv", "--id", "image", *QUICK, "--json", "r.json")
    assert code == 0
    assert numbers()["n"] == 190
    assert numbers()["scores"][0]["value"] > 0.4
    assert "10 rows of codes have no partner" in out


def test_factors_may_be_columns_of_the_codes(evaluate):
    code, _, _ = evaluate(
        "all.parquet", "--id", "image", "--features", "z*", "--factor-columns", "sh*,size", *QUICK, "--json", "r.json"
    )
    assert code == 0
    assert (numbers()["codes"], numbers()["factors"]) == (["z0", "z1"], ["shape", "size"])
    assert read_json()["settings"]["kinds"] == {"shape": "categorical", "size": "continuous"}


def test_columns_that_are_factors_are_no_codes(evaluate):
    code, _, _ = evaluate(
        "all.parquet", "--id", "image", "--factor-columns", "z1,shape,plate", *QUICK, "--json", "r.json"
    )
    assert code == 0
    assert numbers()["codes"] == ["z0"]


def test_columns_of_a_matrix_are_called_as_in_python(evaluate):
    np.save("factors.npy", np.random.default_rng(0).normal(size=(200, 2)))
    options = ["--factor-columns", "factor1,0", "--kinds", "factor1=ordinal", *QUICK, "--json", "r.json"]
    code, out, _ = evaluate("codes.npy", "factors.npy", *options)
    assert code == 0
    assert read_json()["settings"]["kinds"] == {"factor1": "ordinal", "factor0": "continuous"}
    assert "note: factor0: 200 distinct values" in out


def test_columns_of_a_matrix_that_are_factors_are_no_codes(evaluate):
    assert evaluate("codes.npy", "--factor-columns", "0", *QUICK, "--json", "r.json")[0] == 0
    assert (numbers()["codes"], numbers()["factors"]) == (["code1"], ["factor0"])


def test_factors_may_be_a_file_of_labels(evaluate):
    np.save("labels.npy", np.load("codes.npy")[:, 1].round().astype(int))
    assert evaluate("codes.npy", "labels.npy", *QUICK, "--json", "r.json")[0] == 0
    assert (numbers()["factors"], numbers()["own_codes"]) == (["factor0"], {"factor0": "code1"})


def test_no_column_is_lost_by_a_shorter_name(evaluate):
    rng = np.random.default_rng(0)
    write_csv("f.csv", ["dose", "Metadata_dose", "0", "factor0"], rng.normal(size=(200, 4)))
    assert evaluate("codes.npy", "f.csv", *QUICK, "--json", "r.json")[0] == 0
    assert numbers()["factors"] == ["dose", "Metadata_dose", "0", "factor0"]


def test_factors_that_cannot_be_measured_are_not_held_against_the_codes(evaluate):
    with open("factors.csv") as file:
        header, *rows = csv.reader(file)
    write_csv("more.csv", ["image", "plate", *header], [[f"im{i}", "p1", *row] for i, row in enumerate(rows)])
    options = ["--factor-columns", "shape,size,image,plate", *QUICK, "--json", "r.json", "--report", "r.html"]
    code, out, _ = evaluate("codes.npy", "more.csv", *options)
    assert code == 0
    first, second = out.splitlines()[:2]
    assert first == "All 2 factors have a code of their own."
    assert second.endswith("Not measured (see the notes): image, plate.")
    assert numbers()["unmeasured"] == ["image", "plate"]
    assert numbers()["unexplained"] == []
    with open("r.html") as file:
        assert "Factors that could not be measured:" in file.read()
    _, out, _ = evaluate("codes.npy", "more.csv", "--factor-columns", "size,plate", *QUICK)
    assert out.startswith("The only factor that could be measured has a code of its own.")
    assert "2 codes, 2 factors, 200 rows" in out


def test_groups_stay_together_and_are_no_factor(evaluate):
    write = ["--json", "r.json"]
    assert (
        evaluate("all.parquet", "--features", "z*", "--factor-columns", "size", "--cluster", "plate", *QUICK, *write)[0]
        == 0
    )
    assert read_json()["settings"]["clusters"] == 10
    assert evaluate("codes.npy", "all.parquet", "--cluster", "plate", *QUICK, *write)[0] == 0
    assert "plate" not in numbers()["factors"]


def test_kinds_and_further_choices_are_handed_on(evaluate):
    kinds = ["--kinds", "size=circular:1, shape=categorical"]
    further = [
        "--discrete-codes",
        "--infomec-version",
        "tripod",
        "--sensitivity",
        "--metrics",
        "infomec",
        "--nulls",
        "1",
    ]
    quick = ["--resamples", "0", "--no-structural", "--json", "-", "--quiet", "--seed", "3"]
    code, out, err = evaluate("codes.npy", "factors.csv", "--factor-columns", "s*", *kinds, *further, *quick)
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["settings"]["kinds"] == {"shape": "categorical", "size": "circular"}
    assert (result["settings"]["infomec_version"], result["settings"]["seed"]) == ("tripod", 3)
    assert [row["bins"] for row in result["numbers"]["sensitivity"]] == [10, 20, 50]
    assert result["numbers"]["structural"] is None


def test_missing_values_are_refused_or_left_out(evaluate):
    code, _, err = evaluate("codes.npy", "holes.csv", *QUICK)
    assert code == 2
    assert "factor shape has missing values (row 3, 5)" in err
    assert "--drop-missing" in err
    code, out, _ = evaluate("codes.npy", "holes.csv", *QUICK, "--drop-missing")
    assert code == 0
    assert "198 rows" in out


def test_scores_that_cannot_be_had_say_why(evaluate):
    code, out, _ = evaluate(
        "codes.npy", "factors.csv", "--factor-columns", "size", "--metrics", "modularity", *QUICK[2:]
    )
    assert code == 0
    assert "Only one factor varies" in " ".join(out.split())


def test_all_metrics_are_listed_with_what_they_promise(evaluate):
    code, out, _ = evaluate("--list")
    assert code == 0
    for metric in METRICS.values():
        assert f"{metric.name}  {metric.reference}" in out
    assert out.count("invariant to") == len(METRICS)
    assert "from 0 to inf, lower is better; fast" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runs/ae-O"], "there is no file and no run folder runs/ae-O"),
        (["codes.npy"], "name those columns of codes that are factors with factor_columns"),
        (["codes.npy", "nothing.csv"], "nothing.csv does not exist"),
        (["codes.npy", "shuffled.csv"], "codes has 200, factors has 190"),
        (
            ["codes.npy", "factors.csv", "--factor-columns", "hue"],
            "no column of factors.csv matches factor_columns 'hue'",
        ),
        (["codes.npy", "factors.csv", "--metrics", "migg"], "got 'migg'"),
        (["codes.npy", "factors.csv", "--kinds", "hue=continuous"], "kinds names hue, but the factors are"),
        (["codes.npy", "factors.csv", "--kinds", "size=circular,shape"], "but has 'shape'"),
        (["codes.npy", "factors.csv", "--kinds", "size=circular,size=ordinal"], "names size twice"),
        (["codes.npy", "factors.csv", "--kinds", "round"], "got 'round'"),
        (["codes.npy", "factors.csv", "--infomec-version", "old"], "infomec_version must be one of"),
        (["codes.npy", "factors.csv", "--dci-model", "tree"], "dci_model must be one of"),
        (
            ["codes.npy", "factors.csv", "--features", "z*"],
            "features (--features) does not apply to files like codes.npy",
        ),
        (["codes.npy", "factors.csv", "--cluster", "plate"], "no table has a metadata column 'plate'"),
        (["codes.npy", "factors.csv", "--csv", "factors.csv"], "would overwrite the input factors.csv"),
        (["codes.parquet", "--id", "image", "--factor-columns", "z*"], "no feature columns"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(arguments, words, evaluate):
    code, out, err = evaluate(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_components_of_codes_are_compared_with_the_codes(evaluate, rng):
    factors = rng.integers(0, 9, size=(400, 2))
    turned = (factors + 0.1 * rng.normal(size=factors.shape)) @ np.array([[1.0, -1.0], [1.0, 1.0]]) + 20
    np.save("turned.npy", turned)
    write_csv("f.csv", ["a", "b"], factors)
    quick = ["--metrics", "infomec", "--resamples", "0", "--nulls", "1", "--no-structural"]
    outputs = ["--json", "r.json", "--csv", "r.csv", "--report", "r.html"]
    code, out, err = evaluate("turned.npy", "f.csv", "--ica", *quick, *outputs)
    assert (code, err) == (0, "")
    assert out.startswith("All 2 factors have a code of their own.")
    heading = next(line for line in out.splitlines() if "before" in line and "+ ICA" in line)
    assert heading.split()[0] == "score"
    found = numbers()
    assert found["name"] == "turned + ICA"
    assert found["codes"] == ["component0", "component1"]
    names = ["turned", "turned + ICA, not centred", "turned + ICA, whitened"]
    assert [one["name"] for one in found["compared"]] == names
    before, after = found["compared"][0]["scores"][0]["value"], found["scores"][0]["value"]
    assert before < 0.3 < 0.8 < after
    with open("r.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["codes"] for row in rows[::3]] == ["turned + ICA", *names]
    with open("r.html") as file:
        assert "What did ICA change?" in file.read()
    code, _, err = evaluate("turned.npy", "f.csv", "--ica", "--discrete-codes", *quick)
    assert code == 2
    assert "ica needs codes that are numbers, but the codes of turned are classes" in err


def test_components_that_did_not_converge_are_noted(evaluate, rng):
    np.save("noise.npy", rng.normal(size=(200, 2)))
    quick = ["--metrics", "mig", "--resamples", "0", "--nulls", "0", "--no-structural"]
    code, _, err = evaluate("noise.npy", "factors.csv", "--ica", *quick, "--json", "r.json")
    assert code == 0
    note = "noise + ICA, whitened: ICA did not converge, so the axes may be arbitrary."
    assert note in read_json()["notes"]
    code, _, err = evaluate("noise.npy", "factors.csv", "--ica", *quick, "--seed", "-1")
    assert (code, "seed must be an integer from 0 to 4294967295; got -1" in err) == (2, True)
