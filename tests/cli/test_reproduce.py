import json
import sys

import jsonschema
import pytest

from congruence.cli import main
from congruence.experiments.recipes._files import read_numbers
from congruence.experiments.recipes.result import RecipeResult
from congruence.experiments.recipes.statistical_versus_structural import run as method
from congruence.schema import result_schema

NAME = "statistical-versus-structural"
FILES = [
    "_record.jsonl",
    "codes.svg",
    "masking.svg",
    "numbers.json.gz",
    "parts",
    "regression.svg",
    "report.html",
    "result.json",
    "table.md",
]


def run(capsys, *arguments):
    sys.argv = ["congruence", "reproduce", *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    return stopped.value.code or 0, printed.out, printed.err


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """The recipe with hardly any training, in a folder of its own."""
    smoke = method.PARAMETERS["smoke"] | {"sizes": [20, 50], "draws": 4, "runs": 2, "rows": 130, "steps": 2}
    monkeypatch.setattr(method, "PARAMETERS", method.PARAMETERS | {"smoke": smoke})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_says_what_there_is(capsys):
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert f"{NAME}\n    A misspecified regression" in out
    assert "reproduces: Nelson et al. 2026, appendix A.1" in out
    assert "smoke (seconds" in out


def test_at_smoke_scale_every_file_is_there_and_nothing_is_judged(tmp_path, capsys):
    code, out, err = run(capsys, NAME, "--scale", "smoke", "--device", "cpu", "--out", tmp_path / "r")
    assert code == 0
    assert out.startswith("Not judged: the smoke scale only checks that the code runs.")
    assert out.count("? unknown") == 1 + 8  # all together, then each
    assert err == f"report: {tmp_path / 'r' / 'report.html'}\n"
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == FILES
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    jsonschema.validate(result, result_schema(RecipeResult))
    assert result["settings"]["scale"] == "smoke"
    assert result["status"] == "unknown"
    assert result["numbers"]["paper"]["example 2"]["statistically identifiable"] == "yes"
    kept = read_numbers(tmp_path / "r")
    assert [one.status for one in method.present(kept["ours"], kept["settings"]).findings] == ["holds"] * 8
    hidden = kept["ours"]["example 2"][1]
    between = max(one["held_out"]["mean"] for one in hidden["codes"])
    to_truth = min(one["held_out"]["mean"] for one in hidden["rigid"])
    assert 3 * between < hidden["least"] < 1.1 * to_truth


def test_what_is_finished_is_shown_and_not_done_again_unless_forced(quick, capsys, monkeypatch):
    arguments = (NAME, "--scale", "smoke", "--device", "cpu")
    _, first, err = run(capsys, *arguments)
    folder = quick / "reproduced" / f"{NAME}-smoke-seed0"
    assert "nothing was computed" not in err
    with monkeypatch.context() as patch:
        patch.setattr(method, "compute", lambda job: pytest.fail("worked in vain"))
        code, again, err = run(capsys, *arguments)
    assert (code, again) == (0, first)
    assert err.startswith("nothing was computed: the folder holds this result already (--force computes it again)\n")
    (folder / "table.md").write_text("old")
    code, _, err = run(capsys, *arguments, "--force")
    assert code == 0
    assert (folder / "table.md").read_text().startswith("# Is a representation")


def test_folders_are_verified_and_judged_again(quick, capsys):
    run(capsys, NAME, "--scale", "smoke", "--device", "cpu", "--out", "r", "-q")
    assert run(capsys, "verify", "r") == (0, "1 folder verified, 0 differences\n", "")
    (quick / "r" / "table.md").write_text("old")
    code, out, err = run(capsys, "verify", "r")
    assert (code, out) == (1, "1 folder verified, 1 difference\n")
    assert "r/table.md differs from what its numbers give" in err
    assert run(capsys, "judge", "r")[1].startswith("r: unknown. Not judged")
    assert run(capsys, "verify", "r")[0] == 0


def test_a_result_goes_to_stdout_in_every_form(quick, capsys):
    arguments = (NAME, "--scale", "smoke", "--device", "cpu", "-q")
    code, out, err = run(capsys, *arguments, "--json", "-")
    written = json.loads((quick / "reproduced" / f"{NAME}-smoke-seed0" / "result.json").read_text())
    shown = json.loads(out)
    assert (code, err) == (0, "")
    assert shown["settings"].pop("command").startswith(f"congruence reproduce {NAME} --scale smoke")
    written["settings"].pop("command")
    assert shown == written
    assert run(capsys, *arguments, "--csv", "-")[1].splitlines()[0].startswith("recipe,finding,status,number")
    assert run(capsys, *arguments, "--markdown", "-")[1].startswith("# Is a representation")
    assert run(capsys, *arguments, "--report", "r.html") == (0, "", "")
    assert run(capsys, *arguments, "--report", "r.pdf")[0] == 2


def test_quiet_prints_nothing(quick, capsys):
    assert run(capsys, NAME, "--scale", "smoke", "--device", "cpu", "-q") == (0, "", "")


def test_an_interrupted_run_leaves_no_half_written_file_and_goes_on(quick, capsys, monkeypatch):
    train, trained = method.train, []

    def stop_at_the_third(*args, **kwargs):
        trained.append(args)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return train(*args, **kwargs)

    monkeypatch.setattr(method, "train", stop_at_the_third)
    arguments = (NAME, "--scale", "smoke", "--device", "cpu", "--out", "r")
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (130, "")
    assert "no file was left half-written" in err
    assert [path.name for path in (quick / "r").iterdir()] == ["parts"]
    kept = sorted(path.name for path in (quick / "r" / "parts").iterdir())
    assert kept[-2:] == ["shown6-run0.safetensors", "shown6-run1.safetensors"]
    assert not any(name.endswith(".part") for name in kept)
    assert run(capsys, *arguments, "-q")[0] == 0
    assert len(trained) == 5  # two kept, one stopped, and the two that were left


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("statistical",), "there is no recipe 'statistical'; did you mean statistical-versus-structural?"),
        ((NAME, "--scale", "tiny"), "scale must be one of 'smoke', 'small', 'paper', 'full'; got 'tiny'"),
        ((NAME, "--seed", "-1"), "seed must be an integer from 0 to 4294967295; got -1"),
        ((NAME, "--device", "tpu"), "device must be 'auto', 'cpu' or 'cuda'"),
        ((NAME, "--out", "file"), "cannot make the folder file: File exists"),
        ((NAME, "--out", "-"), "--out takes a folder"),
        (("verify",), "verify needs at least one folder of results"),
        (("verify", "file"), "cannot read the numbers of a recipe from file/numbers.json.gz: Not a directory"),
        ((NAME, "file"), "a recipe takes no folders; got file"),
    ],
)
def test_a_call_that_cannot_work_is_one_sentence_and_nothing_is_written(arguments, message, quick, capsys):
    (quick / "file").write_text("")
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("congruence: ")
    assert message in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in quick.iterdir()] == ["file"]
