import json
import os

import pytest

from congruence.errors import InputError
from congruence.reproduce.perform import perform

NAMES = ["line.svg", "parts", "report.html", "result.json", "table.md"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_recipe_writes_the_files_of_the_contract(toy, tmp_path):
    done = perform("toy", tmp_path / "a" / "b", scale="smoke", seed=3, device="cpu")
    assert done.fresh
    assert names(done.folder) == NAMES
    result = json.loads((done.folder / "result.json").read_text())
    assert {"paper", "ours", "claims", "settings"} <= set(result)
    assert [claim["holds"] for claim in result["claims"]] == [True, False, None]
    assert all(set(claim) == {"statement", "holds", "evidence"} for claim in result["claims"])
    settings = {"recipe": "toy", "edition": 1, "scale": "smoke", "seed": 3, "device": "cpu", "rows": 3}
    assert result["settings"] == settings


def test_the_table_is_markdown_that_no_bar_can_break(toy, tmp_path):
    text = (perform("toy", tmp_path / "a").folder / "table.md").read_text()
    assert text.startswith("# Is it so?\n\nNobody 2026. It is so.\n")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in rows} == {4}
    assert "| It fails. | ✕ fails | no |" in rows
    assert r"| none | – | a \| b |" in rows


def test_a_figure_of_its_own_brings_its_colours(toy, tmp_path):
    text = (perform("toy", tmp_path / "a").folder / "line.svg").read_text()
    assert text.startswith("<svg xmlns=")
    assert "prefers-color-scheme: dark" in text
    assert "--ink: #1c2027" in text


def test_what_is_finished_is_not_done_again_unless_forced(toy, tmp_path):
    first = perform("toy", tmp_path / "a")
    stamps = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")}
    again = perform("toy", tmp_path / "a")
    assert not again.fresh
    assert json.dumps(again.result) == json.dumps(json.loads((first.folder / "result.json").read_text()))
    assert {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")} == stamps
    assert toy.computed == ["first", "second"]
    assert perform("toy", tmp_path / "a", force=True).fresh
    assert toy.computed == ["first", "second"] * 2


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(toy, tmp_path):
    folders = [perform("toy", tmp_path / str(i), seed=seed).folder for i, seed in enumerate((1, 1, 2))]
    for name in ("result.json", "table.md", "report.html", "line.svg"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    assert (folders[0] / "result.json").read_bytes() != (folders[2] / "result.json").read_bytes()


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), MemoryError()])
def test_an_interrupted_run_goes_on_where_it_stopped(problem, toy, tmp_path):
    toy.fail = problem
    with pytest.raises(type(problem)):
        perform("toy", tmp_path / "a")
    assert names(tmp_path / "a") == ["parts"]
    assert names(tmp_path / "a" / "parts") == ["first.safetensors", "settings.json"]
    toy.fail = None
    perform("toy", tmp_path / "a")
    assert toy.computed == ["first", "second"]
    perform("toy", tmp_path / "b")
    assert (tmp_path / "a" / "result.json").read_bytes() == (tmp_path / "b" / "result.json").read_bytes()


def test_a_file_that_was_lost_is_made_again_from_the_parts(toy, tmp_path):
    folder = perform("toy", tmp_path / "a").folder
    (folder / "line.svg").unlink()
    assert perform("toy", folder).fresh
    assert names(folder) == NAMES
    assert toy.computed == ["first", "second"]


def test_damaged_parts_and_parts_of_another_edition_are_computed_anew(toy, tmp_path):
    folder = perform("toy", tmp_path / "a").folder
    (folder / "result.json").unlink()
    (folder / "parts" / "first.safetensors").write_bytes(b"broken")
    perform("toy", folder)
    assert toy.computed == ["first", "second", "first"]
    toy.EDITION = 2
    perform("toy", folder, force=True)
    assert toy.computed[3:] == ["first", "second"]


def test_no_half_written_result_where_writing_fails(toy, tmp_path, monkeypatch):
    folder = perform("toy", tmp_path / "a").folder
    monkeypatch.setattr("congruence.reproduce.write.markdown", lambda made: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        perform("toy", folder, force=True)
    assert "result.json" not in names(folder)
    assert not list(folder.rglob("*.part"))


def test_other_settings_are_refused_unless_forced(toy, tmp_path):
    perform("toy", tmp_path / "a", seed=1)
    with pytest.raises(InputError, match=r"holds toy with other settings \(scale small, seed 1.* or --force"):
        perform("toy", tmp_path / "a", seed=2)
    assert perform("toy", tmp_path / "a", seed=2, force=True).result["settings"]["seed"] == 2
    (tmp_path / "a" / "parts" / "settings.json").write_text('{"recipe": "another"}')
    with pytest.raises(InputError, match="holds another with other settings .*; give another --out$"):
        perform("toy", tmp_path / "a", seed=2, force=True)


@pytest.mark.parametrize("name", ["table.md", "result.json", "parts"])
def test_files_that_no_recipe_wrote_are_left_alone(name, toy, tmp_path):
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"holds {name}, which no recipe wrote; give another --out"):
        perform("toy", tmp_path, force=True)
    assert (tmp_path / name).read_text() == "mine"
    assert names(tmp_path) == [name]


def test_a_folder_with_other_files_is_taken(toy, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    perform("toy", tmp_path)
    assert names(tmp_path) == sorted([*NAMES, "notes.txt"])


def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work(toy, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot make the folder .*file.*: (File exists|Not a directory)"):
        perform("toy", tmp_path / "file")
    (tmp_path / "a" / "report.html").mkdir(parents=True)
    with pytest.raises(InputError, match=r"cannot write to .*report.html: it is a folder"):
        perform("toy", tmp_path / "a")
    assert toy.computed == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(toy, tmp_path):
    (tmp_path / "a").mkdir(mode=0o500)
    with pytest.raises(InputError, match="permission denied"):
        perform("toy", tmp_path / "a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "huge"}, "scale must be one of smoke, small, paper, full, not 'huge'"),
        ({"seed": -1}, "seed must be between 0 and 4294967295, not -1"),
        ({"device": "tpu"}, "device must be 'auto', 'cpu' or 'cuda'"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_a_folder_is_made(options, message, toy, tmp_path):
    with pytest.raises(InputError, match=message):
        perform("toy", tmp_path / "a", **options)
    assert names(tmp_path) == []
