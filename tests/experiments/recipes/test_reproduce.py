import gzip
import json
import os
import shutil

import pytest
from matplotlib import pyplot

from congruence.errors import CongruenceWarning, InputError
from congruence.experiments.recipes import judge, reproduce, verify
from congruence.experiments.recipes._files import read_numbers, write_numbers
from congruence.experiments.recipes.result import RecipeFigure
from congruence.parts import RECORD

NAMES = [RECORD, "line.svg", "numbers.json.gz", "parts", "report.html", "result.json", "table.md"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_recipe_writes_the_files_of_the_contract(toy, tmp_path):
    done = reproduce("toy", tmp_path / "a" / "b", scale="small", seed=3, device="cpu")
    assert not done.reused
    assert names(done.folder) == NAMES
    result = json.loads((done.folder / "result.json").read_text())
    order = ["status", "verdict", "findings", "numbers", "notes", "settings", "versions", "kind", "schema_version"]
    assert list(result) == order
    assert (result["status"], result["verdict"]) == ("fails", "It is so. Mostly.")
    assert [finding["status"] for finding in result["findings"]] == ["holds", "fails", "unknown"]
    assert {"paper", "tables", "figures"} <= set(result["numbers"])
    assert result["numbers"]["ours"] == {"file": "numbers.json.gz"}
    rule = {"source": "Nobody 2026, section 1", "rule": "the mean is above 0.", "margin": "none", "post_hoc": False}
    assert result["numbers"]["claims"] == [{"name": "holds"} | rule]
    assert set(read_numbers(done.folder)["ours"]) == {"mean"}
    settings = {"recipe": "toy", "edition": 1, "scale": "small", "seed": 3, "device": "cpu", "rows": 3}
    assert result["settings"] == settings | {"command": "congruence reproduce toy --scale=small --seed=3 --device=cpu"}


def test_nothing_is_judged_at_the_smoke_scale(toy, tmp_path):
    done = reproduce("toy", tmp_path / "a", scale="smoke", device="cpu")
    assert [finding.status for finding in done.findings] == ["unknown"] * 3
    assert all(finding.evidence.startswith("Not judged: the smoke scale") for finding in done.findings)
    assert done.verdict == "Not judged: the smoke scale only checks that the code runs."


def test_the_files_are_those_that_the_kept_numbers_give(toy, tmp_path):
    folder = reproduce("toy", tmp_path / "a").folder
    shutil.rmtree(folder / "parts")
    assert verify(folder) == []
    table, figure = folder / "table.md", folder / "line.svg"
    table.write_text(table.read_text().replace("It fails.", "It holds."))
    figure.unlink()
    (folder / "mine.txt").write_text("")
    differences = verify(folder)
    assert [text.partition(" ")[0] for text in differences] == [str(figure), str(table), str(folder / "mine.txt")]
    assert "holds" in differences[1]
    assert judge(folder).status == "fails"
    assert [text for text in verify(folder) if "mine.txt" not in text] == []


def test_numbers_that_were_changed_are_seen_and_a_new_rule_is_a_new_judgement(toy, tmp_path, monkeypatch):
    folder = reproduce("toy", tmp_path / "a").folder
    kept = read_numbers(folder)
    write_numbers(folder, {"mean": kept["ours"]["mean"] + 1}, kept["settings"])
    assert any("result.json differs" in text for text in verify(folder))
    write_numbers(folder, kept["ours"], kept["settings"])
    assert verify(folder) == []
    toy.EDITION = 2
    assert "Old numbers, new judgement: the numbers were measured by edition 1" in judge(folder).notes[-1]
    assert read_numbers(folder) == kept


def test_a_drawn_figure_is_kept_by_its_digest(toy, tmp_path, monkeypatch):
    compute = toy.compute

    def draws(job):
        job.drawn.append(RecipeFigure("drawn", "Drawn.", '<svg xmlns="http://www.w3.org/2000/svg"></svg>'))
        return compute(job)

    monkeypatch.setattr(toy, "compute", draws)
    folder = reproduce("toy", tmp_path / "a").folder
    assert verify(folder) == []
    (folder / "drawn.svg").write_text((folder / "drawn.svg").read_text() + " ")
    assert any("is not the figure that was drawn" in text for text in verify(folder))
    (folder / "drawn.svg").unlink()
    with pytest.raises(InputError, match=r"must hold drawn\.svg, which cannot be drawn again"):
        verify(folder)


def test_a_folder_without_numbers_cannot_be_verified(tmp_path):
    with pytest.raises(InputError, match=r"cannot read the numbers of a recipe from .*numbers\.json\.gz"):
        verify(tmp_path)


def test_the_default_folder_names_recipe_scale_and_seed(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(reproduce("toy", scale="smoke", seed=3).folder) == os.path.join("reproduced", "toy-smoke-seed3")
    assert names(tmp_path / "reproduced" / "toy-smoke-seed3") == NAMES


def test_the_table_is_markdown_that_no_bar_can_break(toy, tmp_path):
    text = (reproduce("toy", tmp_path / "a").folder / "table.md").read_text()
    assert text.startswith("# Is it so?\n\n**It is so.** Mostly. 1 of 3 claims hold, 1 fails, 1 is unknown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in rows} == {4, 6}  # numbers, rules
    assert "- ✕ **fails** (refuted) It fails. no" in text
    assert r"| none | – | a \| b |" in rows


def test_a_figure_of_its_own_brings_its_colours(toy, tmp_path):
    text = (reproduce("toy", tmp_path / "a").folder / "line.svg").read_text()
    assert text.startswith("<svg xmlns=")
    assert "prefers-color-scheme: dark" in text
    assert "--ink: #1c2027" in text


def test_what_is_finished_is_not_done_again_unless_forced(toy, tmp_path):
    first = reproduce("toy", tmp_path / "a")
    stamps = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")}
    again = reproduce("toy", tmp_path / "a")
    assert again.reused
    assert {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")} == stamps
    assert toy.computed == ["first", "second"]
    assert not reproduce("toy", tmp_path / "a", force=True).reused
    assert toy.computed == ["first", "second"] * 2


def test_a_result_that_is_read_back_is_the_one_that_was_computed(toy, tmp_path):
    first, again = (reproduce("toy", tmp_path / "a") for _ in range(2))
    assert again.to_json() == first.to_json() == (tmp_path / "a" / "result.json").read_text()
    assert again.to_markdown() == first.to_markdown()
    assert again["holds"].number == pytest.approx(first["holds"].number)
    assert again["holds"] == first["holds"]
    again.report(tmp_path / "again.html")
    page, read = ((tmp_path / name).read_text() for name in ("a/report.html", "again.html"))
    assert read == page


def test_other_versions_than_those_of_the_computation_are_noted(toy, tmp_path, monkeypatch):
    reproduce("toy", tmp_path / "a")
    monkeypatch.setattr("congruence.experiments.recipes._reproduce.versions", lambda: {"numpy": "0.1"})
    assert "computed earlier, with other versions: " in reproduce("toy", tmp_path / "a").notes[-1]


def test_a_result_that_was_read_back_can_be_shown_and_plotted(toy, tmp_path):
    reproduce("toy", tmp_path / "a")
    result = reproduce("toy", tmp_path / "a")
    axes = result.plot()
    assert len(axes.lines) == 1
    pyplot.close(axes.figure)
    cell = result._repr_html_()
    assert "It fails." in cell
    assert "<svg" in cell
    assert list(result.to_frame()["status"]) == ["holds", "fails", "unknown"]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(toy, tmp_path):
    folders = [reproduce("toy", tmp_path / str(i), seed=seed).folder for i, seed in enumerate((1, 1, 2))]
    for name in ("result.json", "table.md", "report.html", "line.svg"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    assert (folders[0] / "result.json").read_bytes() != (folders[2] / "result.json").read_bytes()


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), MemoryError()])
def test_an_interrupted_run_goes_on_where_it_stopped(problem, toy, tmp_path):
    toy.fail = problem
    with pytest.raises(type(problem)):
        reproduce("toy", tmp_path / "a")
    assert names(tmp_path / "a") == ["parts"]
    assert names(tmp_path / "a" / "parts") == ["first.safetensors", "settings.json"]
    toy.fail = None
    reproduce("toy", tmp_path / "a")
    assert toy.computed == ["first", "second"]
    reproduce("toy", tmp_path / "b")
    assert (tmp_path / "a" / "result.json").read_bytes() == (tmp_path / "b" / "result.json").read_bytes()


def test_a_file_that_was_lost_is_made_again_from_the_parts(toy, tmp_path):
    folder = reproduce("toy", tmp_path / "a").folder
    (folder / "line.svg").unlink()
    assert not reproduce("toy", folder).reused
    assert names(folder) == NAMES
    assert toy.computed == ["first", "second"]


def test_a_file_that_was_changed_is_made_again_from_the_parts(toy, tmp_path):
    folder = reproduce("toy", tmp_path / "a").folder
    (folder / "table.md").write_text("better numbers")
    with pytest.warns(CongruenceWarning, match=r"table.md is not as it was written; it is written again"):
        assert not reproduce("toy", folder).reused
    assert "better" not in (folder / "table.md").read_text()
    assert reproduce("toy", folder).reused
    assert toy.computed == ["first", "second"]


def test_a_part_with_other_numbers_is_computed_anew(toy, tmp_path):
    folder = reproduce("toy", tmp_path / "a").folder
    (folder / "result.json").unlink()
    part = folder / "parts" / "first.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"\x41")
    reproduce("toy", folder)
    assert toy.computed == ["first", "second", "first"]


def test_a_folder_in_use_is_refused(toy, tmp_path, held_elsewhere):
    with held_elsewhere(tmp_path, folder=True), pytest.raises(InputError, match="another process is using"):
        reproduce("toy", tmp_path)


def test_damaged_parts_and_parts_of_another_edition_are_computed_anew(toy, tmp_path):
    folder = reproduce("toy", tmp_path / "a").folder
    (folder / "result.json").unlink()
    (folder / "parts" / "first.safetensors").write_bytes(b"broken")
    reproduce("toy", folder)
    assert toy.computed == ["first", "second", "first"]
    toy.EDITION = 2
    reproduce("toy", folder, force=True)
    assert toy.computed[3:] == ["first", "second"]


def test_no_half_written_result_where_writing_fails(toy, tmp_path, monkeypatch):
    folder = reproduce("toy", tmp_path / "a").folder
    monkeypatch.setattr("congruence.experiments.recipes.result.RecipeResult.to_markdown", lambda made: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reproduce("toy", folder, force=True)
    assert "result.json" not in names(folder)
    assert not list(folder.rglob("*.part"))


def test_other_settings_are_refused_unless_forced(toy, tmp_path):
    reproduce("toy", tmp_path / "a", seed=1)
    with pytest.raises(InputError, match=r"holds toy with other settings \(scale small, seed 1.* or force"):
        reproduce("toy", tmp_path / "a", seed=2)
    assert reproduce("toy", tmp_path / "a", seed=2, force=True).settings["seed"] == 2
    (tmp_path / "a" / "parts" / "settings.json").write_text('{"recipe": "another"}')
    with pytest.raises(InputError, match="holds another with other settings .*; give another folder$"):
        reproduce("toy", tmp_path / "a", seed=2, force=True)


@pytest.mark.parametrize("name", ["table.md", "result.json", "parts"])
def test_files_that_no_recipe_wrote_are_left_alone(name, toy, tmp_path):
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"holds {name}, which no recipe wrote; give another folder"):
        reproduce("toy", tmp_path, force=True)
    assert (tmp_path / name).read_text() == "mine"
    assert names(tmp_path) == [name]


def test_a_folder_with_other_files_is_taken(toy, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    reproduce("toy", tmp_path)
    assert names(tmp_path) == sorted([*NAMES, "notes.txt"])


def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work(toy, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot make the folder .*file.*: (File exists|Not a directory)"):
        reproduce("toy", tmp_path / "file")
    (tmp_path / "a" / "report.html").mkdir(parents=True)
    with pytest.raises(InputError, match=r"cannot write to .*report.html: it is a folder"):
        reproduce("toy", tmp_path / "a")
    assert toy.computed == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(toy, tmp_path):
    (tmp_path / "a").mkdir(mode=0o500)
    with pytest.raises(InputError, match="permission denied"):
        reproduce("toy", tmp_path / "a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "huge"}, "scale must be one of 'smoke', 'small', 'paper', 'full'; got 'huge'"),
        ({"seed": -1}, "seed must be an integer from 0 to 4294967295; got -1"),
        ({"device": "tpu"}, "device must be 'auto', 'cpu' or 'cuda'"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_a_folder_is_made(options, message, toy, tmp_path):
    with pytest.raises(InputError, match=message):
        reproduce("toy", tmp_path / "a", **options)
    assert names(tmp_path) == []


DRAWN = '<svg xmlns="http://www.w3.org/2000/svg"><g><path d="M0 0"/><use href="#a"/></g></svg>'


def drawn_as(folder, name, text):
    """Numbers that name a figure which was drawn earlier, and the file of it."""
    content = read_numbers(folder) | {"drawn": {name: {"caption": "", "sha256": ""}}}
    (folder / "numbers.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    (folder / f"{name}.svg").write_text(text)


def test_a_drawn_figure_outside_of_the_folder_is_not_read(toy, tmp_path):
    folder = reproduce("toy", tmp_path / "a").folder
    for name in ("../secret", str(tmp_path / "secret")):
        drawn_as(folder, name, DRAWN)
        with pytest.raises(InputError, match=r"numbers\.json\.gz.*the name of a figure must be that of a file"):
            judge(folder)


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        "<foreignObject/>",
        '<path onload="alert(1)"/>',
        '<use href="https://a.org/b.svg"/>',
        '<use xlink:href="javascript:alert(1)" xmlns:xlink="http://www.w3.org/1999/xlink"/>',
        "</svg><p>",
        "<!-- -->",
        "<style>" * 20_000,
    ],
)
def test_a_drawn_figure_with_more_than_shapes_is_refused(toy, tmp_path, inside):
    folder = reproduce("toy", tmp_path / "a").folder
    drawn_as(folder, "drawn", DRAWN)
    judge(folder)
    drawn_as(folder, "drawn", DRAWN.replace("<g>", f"{inside}<g>"))
    with pytest.raises(InputError, match=r"drawn\.svg"):
        judge(folder)


def test_a_page_of_unclosed_scripts_is_compared_at_once_and_a_huge_one_is_not_read(toy, tmp_path):
    folder = reproduce("toy", tmp_path / "a").folder
    (folder / "report.html").write_text("</head>" + "<script" * 20_000)
    assert any("report.html differs" in text for text in verify(folder))
    os.truncate(folder / "report.html", 2**40)
    with pytest.raises(InputError, match=r"report\.html has more than"):
        verify(folder)
