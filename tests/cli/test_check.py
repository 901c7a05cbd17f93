"""`congruence check`: one line, exit codes, JUnit, JSON, baselines, the GitHub Action and the canary."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import ortho_group

from congruence.cli import main
from congruence.testing import CANARY

ROOT = Path(__file__).parents[2]


def write(path, x, ids=None):
    columns = {"doc_id": [f"d{i}" for i in range(len(x))] if ids is None else ids, "length": list(range(len(x)))}
    pq.write_table(pa.table(columns | {f"emb_{i}": x[:, i] for i in range(x.shape[1])}), path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table, and the same rounded, rotated, and changed."""
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(300, 4)).astype(np.float32)
    monkeypatch.chdir(tmp_path)
    write("old.parquet", x)
    write("rounded.parquet", x.astype(np.float16))
    write("rotated.parquet", (x @ ortho_group.rvs(4, random_state=0)).astype(np.float32))
    write("changed.parquet", x + 0.3 * rng.normal(size=x.shape).astype(np.float32))
    write("fewer.parquet", x[5:], [f"d{i}" for i in range(5, 300)])
    return tmp_path


@pytest.fixture
def baseline(folder, capsys):
    read = ("--id", "doc_id", "--features", "emb_*")
    code, _, err = run(capsys, "check", "old.parquet", "--save", "b.safetensors", "--model-name", "toy|\n`1", *read)
    assert (code, err) == (0, "baseline of 300 of 300 rows × 4 dimensions written: b.safetensors\n")
    return ("--baseline", "b.safetensors")


def run(capsys, *arguments):
    sys.argv = ["congruence", *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    return stopped.value.code or 0, printed.out, printed.err


def test_it_prints_one_line_and_remembers_how_to_read_the_table(baseline, capsys):
    code, out, err = run(capsys, "check", "rounded.parquet", *baseline)
    assert (code, err) == (0, "")
    assert out == (
        "✅ **congruence check: holds**. Unchanged: the difference is as small as rounding. "
        "R² is 1.0000 without a map; 300 rows of `toy| 1` × 4 dimensions, allowed: identity.\n"
    )


@pytest.mark.parametrize(
    ("name", "flags", "code"),
    [
        ("rounded", (), 0),
        ("rotated", (), 1),
        ("rotated", ("--allow", "rigid"), 0),
        ("rotated", ("--fail-above", "similarity=0.3"), 0),
        ("rotated", ("--fail-above", "similarity=0.3", "--fail-above", "identity.r2=0.9"), 1),
        ("rotated", ("--fail-above", "similarity=0.3", "--allow", "identity", "--fail-on", "fails"), 1),
        ("rotated", ("--fail-on", "unknown"), 0),
        ("changed", ("--fail-above", "similarity=0.3"), 0),
        ("changed", ("--fail-above", "similarity.r2=0.99"), 1),
        ("changed", ("--fail-above", "linear=0.01"), 1),
        ("changed", ("--tolerance", "0.2"), 0),
        ("changed", (), 1),
    ],
)
def test_the_exit_code_follows_from_what_is_accepted(baseline, capsys, name, flags, code):
    assert run(capsys, "check", f"{name}.parquet", *baseline, *flags, "--quiet")[0] == code


def test_unknown_fails_unless_it_is_allowed(folder, capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 64))
    np.save("few.npy", x)
    np.save("turned.npy", x @ ortho_group.rvs(64, random_state=0))
    flags = ("check", "turned.npy", "--baseline", "few.npy", "--allow", "similarity")
    code, out, err = run(capsys, *flags)
    assert (code, out[0]) == (1, "❌")
    assert "check: unknown**. There are too few rows to decide." in out
    assert "new -> baseline: the status is unknown, which is among --fail-on fails,ambiguous,unknown" in err
    code, out, _ = run(capsys, *flags, "--allow-unknown")
    assert (code, out[0]) == (0, "✅")


def test_missing_rows_are_in_the_line(baseline, capsys):
    code, out, err = run(capsys, "check", "fewer.parquet", *baseline)
    assert (code, out.endswith("allowed: identity. Missing: 5 rows of the baseline.\n")) == (0, True)
    assert "note: 295 rows were paired by id; rows without a partner were left out: 5 of baseline." in err


def test_json_and_junit_agree_with_the_exit_code(baseline, capsys):
    limit = ("--fail-above", "identity=0.3", "--fail-on", "fails")
    code, out, err = run(capsys, "check", "rotated.parquet", *baseline, *limit, "--json", "-", "--junit", "j.xml")
    assert code == 1
    result = json.loads(out)
    jsonschema.validate(result, json.loads((ROOT / "docs" / "schema" / "Comparison.json").read_text(encoding="utf-8")))
    assert err.startswith("❌ **congruence check: fails**")
    assert [gate["exceeded"] for gate in result["settings"]["gates"]] == [True, True]
    assert result["settings"]["inputs"][1]["path"].endswith("b.safetensors")
    suite = ElementTree.parse("j.xml").getroot()
    assert suite.attrib == {"name": "congruence check", "tests": "2", "failures": "2", "errors": "0"}
    assert [case.get("name") for case in suite] == ["new -> baseline: status", "new -> baseline: identity"]
    assert "above the limit 0.3" in suite[1][0].get("message")
    assert "only a rotation" in suite[0][0].text
    code, _, _ = run(capsys, "check", "rounded.parquet", *baseline, "--junit", "j.xml", "--report", "r.html", "-q")
    assert code == 0
    assert ElementTree.parse("j.xml").getroot().get("failures") == "0"
    assert "did the embeddings change?" in Path("r.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "check takes a FILE and either --baseline FILE or --save FILE"),
        (("old.parquet",), "either --baseline FILE or --save FILE"),
        (("old.parquet", "--baseline", "b", "--save", "c"), "either --baseline FILE or --save FILE"),
        (("old.parquet", "--baseline", "no.safetensors"), "there is no baseline no.safetensors; make it with"),
        (("old.parquet", "--save", "b.parquet"), "a baseline is a .safetensors file; got b.parquet"),
        (("old.parquet", "--save", "b.safetensors", "--json", "r.json"), "--save writes a baseline and nothing else"),
        (("old.parquet", "--baseline", "old.parquet", "--junit", "j.json"), "--junit j.json must end in .xml"),
        (("old.parquet", "--baseline", "old.parquet", "--junit", "-"), "--junit takes a file name"),
        (("old.parquet", "--baseline", "old.parquet", "--fail-above", "ica=1"), "--fail-above takes one of the groups"),
        (("old.parquet", "--baseline", "old.parquet", "--fail-on", "no"), "--fail-on must be"),
        (("no.parquet", "--baseline", "old.parquet"), "no.parquet"),
    ],
)
def test_wrong_calls_end_with_2_and_a_sentence(folder, capsys, arguments, says):
    code, out, err = run(capsys, "check", *arguments)
    assert (code, out) == (2, "")
    assert says in err


# The GitHub Action: its steps are run by bash as the runner does, with the inputs in their place.


def run_action(folder, **inputs):
    """Run the steps of action.yml; return the exit code, the summary and the outputs."""
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    given = {name: about.get("default", "") for name, about in action["inputs"].items()} | inputs
    missing = [name for name, about in action["inputs"].items() if about.get("required") and name not in inputs]
    assert not missing
    programs = {"python": f'exec "{sys.executable}" "$@"'}
    if not given["install"]:
        programs["congruence"] = f'exec "{sys.executable}" -m congruence "$@"'
    (folder / "programs").mkdir(exist_ok=True)
    for name, text in programs.items():
        program = folder / "programs" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
    files = {"GITHUB_STEP_SUMMARY": folder / "summary.md", "GITHUB_OUTPUT": folder / "output.txt"}
    for path in files.values():
        path.write_text("")
    environment = os.environ | {name: str(path) for name, path in files.items()} | {"RUNNER_TEMP": str(folder)}
    paths = [folder / "programs", *([folder / "installed" / "bin"] if given["install"] else []), "/usr/bin", "/bin"]
    environment |= {"PATH": os.pathsep.join(map(str, paths)), "PYTHONIOENCODING": "utf-8"}
    if given["install"]:  # into a folder of its own, next to the libraries that are here already
        environment |= {"PIP_TARGET": str(folder / "installed"), "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
        environment |= {"PYTHONPATH": str(folder / "installed")}
    code = 0
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]  # text of a workflow never becomes part of a script
        if step.get("if") == "inputs.install != ''" and not given["install"]:
            continue
        own = {name: _filled(value, given) for name, value in step["env"].items()}
        script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        code = subprocess.run(script, env=environment | own, cwd=folder, capture_output=True, check=False).returncode
        if code:
            break
    assert action["outputs"]["status"]["value"] == "${{ steps.check.outputs.status }}"
    return code, files["GITHUB_STEP_SUMMARY"].read_text(), files["GITHUB_OUTPUT"].read_text()


def _filled(value, given):
    name = value.removeprefix("${{ inputs.").removesuffix(" }}")
    assert value == f"${{{{ inputs.{name} }}}}"
    return given[name]


def test_the_action_writes_the_summary_and_fails_the_job(folder, baseline):
    code, summary, outputs = run_action(folder, new="rounded.parquet", baseline="b.safetensors", install="")
    assert (code, outputs) == (0, "status=holds\n")
    assert summary.startswith("✅ **congruence check: holds**")
    assert summary.count("\n") == 1
    code, summary, outputs = run_action(folder, new="rotated.parquet", baseline="b.safetensors", install="")
    assert (code, outputs) == (1, "status=fails\n")
    assert "The difference is only a rotation." in summary
    assert "- new -> baseline: the status is fails" in summary
    assert ElementTree.parse(folder / "congruence.xml").getroot().get("failures") == "1"
    more = {"fail-above": "similarity=0.3 similarity.r2=0.9", "arguments": "--id doc_id --features emb_*"}
    code, _, outputs = run_action(folder, new="rotated.parquet", baseline="b.safetensors", install="", **more)
    assert (code, outputs) == (0, "status=holds\n")


def test_the_action_says_so_if_the_check_cannot_be_made(folder):
    code, summary, outputs = run_action(
        folder, new="old.parquet", baseline="$(touch hacked)", install="", allow="rigid"
    )
    assert (code, outputs) == (2, "")
    assert "the check could not be made" in summary
    assert not (folder / "hacked").exists()


def test_the_action_installs_the_package_first(folder, baseline, wheel):
    code, summary, _ = run_action(folder, new="rounded.parquet", baseline="b.safetensors", install=str(wheel))
    assert code == 0, summary
    assert (folder / "installed" / "congruence" / "__init__.py").exists()
    code, summary, outputs = run_action(folder, new="old.parquet", baseline="b.safetensors", install="no-such-package")
    assert (code != 0, summary, outputs) == (True, "", "")


# The canary: fifty sentences through a model, checked when a library is upgraded.


def test_the_canary_has_fifty_different_sentences():
    assert len(CANARY) == len(set(CANARY)) == 50
    assert all(sentence.strip() == sentence and 20 < len(sentence) < 80 for sentence in CANARY)


def test_a_changed_model_is_noticed_by_the_canary(tmp_path, monkeypatch, capsys):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    monkeypatch.chdir(tmp_path)
    words = sorted({word for sentence in CANARY for word in sentence.split()})
    known = {"[PAD]": 0} | {word: i + 1 for i, word in enumerate(words)}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="[PAD]"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    config = transformers.GPTNeoXConfig(
        vocab_size=len(known), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    for seed, name in enumerate(["model", "retrained"]):
        torch.manual_seed(seed)
        transformers.GPTNeoXModel(config).save_pretrained(name)
        transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]").save_pretrained(name)
    capsys.readouterr()

    assert run(capsys, "check", "--canary", "sentences.txt")[0] == 0
    assert Path("sentences.txt").read_text().splitlines() == CANARY
    embed = ("--layer", "final_layer_norm", "--pool", "mean", "--text", "sentences.txt", "--quiet")
    for name in ("model", "retrained"):
        assert run(capsys, "extract", f"./{name}", *embed, "--out", f"{name}.parquet")[0] == 0
    assert run(capsys, "check", "model.parquet", "--save", "canary.safetensors")[0] == 0
    assert run(capsys, "extract", "./model", *embed, "--batch", "7", "--out", "again.parquet")[0] == 0
    code, out, _ = run(capsys, "check", "again.parquet", "--baseline", "canary.safetensors")
    assert (code, "50 rows" in out) == (0, True)
    code, out, _ = run(capsys, "check", "retrained.parquet", "--baseline", "canary.safetensors")
    assert (code, "The embeddings changed" in out) == (1, True)
