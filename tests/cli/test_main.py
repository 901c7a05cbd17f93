"""What holds for every command: completion, closed pipes, the version, and no traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import congruence
from congruence.__main__ import run
from congruence.cli import build, main

COMMANDS = [
    ["--help"],
    ["compare", "--help"],
    ["data", "list"],
    ["reproduce", "list"],
    ["compare", "a.npy", "b.npy", "--nulls", "2", "--bootstrap", "0"],
    ["compare", "a.npy", "b.npy", "--nulls", "2", "--bootstrap", "0", "--json", "-", "-q"],
]


def walk(command, path=()):
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from walk(one, (*path, name))


EVERY = [pytest.param(path, one, id=" ".join(path) or "congruence") for path, one in walk(build())]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(200, 3)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


# starts a command in its own session with its terminal; a preexec_fn would run the fork handlers of other libraries
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "congruence", *sys.argv[1:]])
"""


def start(*arguments, **streams):
    return subprocess.Popen([sys.executable, "-m", "congruence", *arguments], **streams)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_reader_that_has_seen_enough_ends_nothing(arguments, folder):
    with start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()  # before anything was written
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_work_is_finished_although_nobody_reads_on(folder):
    with start(*COMMANDS[4], "--json", "c.json", "--report", "r.html", stdout=subprocess.PIPE) as process:
        process.stdout.close()
    assert process.returncode == 0
    assert {"c.json", "r.html"} <= {path.name for path in folder.iterdir()}


def test_head_in_a_shell(folder):
    line = f'set -o pipefail; "{sys.executable}" -m congruence data list 2>&1 | head -n 1'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("rooms: ")


def test_an_error_keeps_its_exit_code_where_nobody_reads_it(folder):
    with start("compare", "a.npy", "missing.npy", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        process.stderr.close()
    assert process.returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "congruence", "data", "list"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == b"congruence: cannot write the output: No space left on device\n"


def test_an_output_that_cannot_hold_a_character_and_a_folder_that_is_gone_are_one_sentence(folder):
    command = [sys.executable, "-m", "congruence", "compare"]
    options = {"capture_output": True, "text": True, "env": os.environ | {"PYTHONIOENCODING": "ascii"}}
    done = subprocess.run([*command, *COMMANDS[4][1:]], **options)
    said = "congruence: the output cannot be written in ascii; set PYTHONIOENCODING=utf-8"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, said)
    gone = f'mkdir gone; cd gone; rmdir ../gone; "{sys.executable}" -m congruence compare ../a.npy ../b.npy'
    done = subprocess.run(["bash", "-c", gone], capture_output=True, text=True)
    said = "congruence: the current folder or a file cannot be used: No such file or directory"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, said)


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_version_means_that_of_the_program_in_every_command(path, command, capsys, monkeypatch):
    assert [name for one in command.params for name in one.opts].count("--version") == 1
    monkeypatch.setattr(sys, "argv", ["congruence", *path, "--version"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert capsys.readouterr().out == f"congruence {congruence.__version__}\n"


def complete(words):
    code = "import sys; sys.argv = ['congruence']; from congruence.cli import main; main()"
    asked = {"_CONGRUENCE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True)
    return done.stdout.split()


def test_a_shell_completes_commands_and_options(capsys, monkeypatch):
    assert complete("congruence da") == ["data"]
    assert "--force" in complete("congruence reproduce --fo")
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # a test may have no shell above it
    monkeypatch.setattr(sys, "argv", ["congruence", "--show-completion"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert "_CONGRUENCE_COMPLETE=complete_bash" in capsys.readouterr().out


@pytest.mark.parametrize("problem", [ZeroDivisionError("oops"), RecursionError("deep"), OSError("gone")])
def test_a_defect_is_one_sentence_and_exit_code_3(problem, folder, capsys, monkeypatch):
    def fail(*given, **options):
        raise problem

    monkeypatch.setattr("congruence.experiments.data.list_data", fail)
    monkeypatch.setattr(sys, "argv", ["congruence", "data", "list"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 3
    err = capsys.readouterr().err
    assert err.startswith(f"congruence: internal error ({type(problem).__name__}: ")
    assert len(err.splitlines()) == 1


def test_too_little_memory_for_a_library_is_no_defect(folder, capsys, monkeypatch):
    def fail(*given, **options):
        raise ImportError("libtorch.so: failed to map segment from shared object")

    monkeypatch.setattr("congruence.experiments.data.list_data", fail)
    monkeypatch.setattr(sys, "argv", ["congruence", "data", "list"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("congruence: not enough memory to load the libraries")


LONG = ["reproduce", "statistical-versus-structural", "--scale", "small", "--device", "cpu", "--out", "r"]


def wait_for(path, process):
    while not path.exists() and process.poll() is None:
        time.sleep(0.05)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interruption_ends_a_command_quietly(folder, sent, code):
    with start(*LONG, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(folder / "r" / "parts" / "settings.json", process)
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, b"", b"interrupted; no file was left half-written\n")
    assert not list(folder.rglob(".*"))


def test_a_terminal_that_is_closed_ends_a_command_in_order(folder):
    master, terminal = os.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    with subprocess.Popen([sys.executable, "-c", TAKE_TERMINAL, *LONG], **streams, start_new_session=True) as process:
        os.close(terminal)
        wait_for(folder / "r" / "parts" / "settings.json", process)
        os.close(master)
    assert process.returncode == 129
    assert not list(folder.rglob(".*"))


def test_a_command_under_nohup_survives_the_end_of_its_terminal(folder):
    nohup = ["nohup", sys.executable, "-m", "congruence", "data", "make", "rooms", "--n", "300", "--out", "x.npz"]
    with subprocess.Popen(nohup, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
        while not list(folder.glob(".x.npz*")) and one.poll() is None:
            time.sleep(0.01)
        one.send_signal(signal.SIGHUP)
    assert one.returncode == 0
    assert (folder / "x.npz").exists()


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("resolve x.npy --out c.parquet", "c.parquet"),
        ("resolve x.npy --model m.safetensors", "m.safetensors"),
        ("compare x.npy x.npy --report r.html", "r.html"),
        ("extract model.py:load --layer 0 --array x.npy --out e.parquet", "e.parquet"),
        ("data make sprites --n 5 --out s.npz", "s.npz"),
        ("data make sprites --n 5 --out s.npz --factors s.csv", "s.csv"),
        ("data show sprites --columns 2 --out s.png", "s.png"),
    ],
)
def test_a_second_command_with_the_same_output_is_refused(call, held_elsewhere, command, output):
    np.save("x.npy", np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32))
    Path("model.py").write_text("import torch\ndef load(): return torch.nn.Sequential(torch.nn.Linear(3, 2))\n")
    with held_elsewhere(output):
        code, _, err = call(*command.split())
    said = f"congruence: another process is using {output}; wait until it has finished, or give another output\n"
    assert (code, err) == (2, said)
    assert sorted(path.name for path in Path().iterdir() if path.is_file()) == ["model.py", "x.npy"]


def test_ctrl_c_before_a_command_begins_is_quiet(capsys, monkeypatch):
    def press():
        raise KeyboardInterrupt

    monkeypatch.setattr("congruence.cli.main", press)
    with pytest.raises(SystemExit) as stopped:
        run()
    assert stopped.value.code == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("path", "one"), EVERY)
def test_help_is_readable_in_80_columns(path, one, monkeypatch, capsys):
    """No line is cut, and every example can be copied: it is on one line."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    with pytest.raises(SystemExit):
        build()(["--help"] if not path else [*path, "--help"], prog_name="congruence")
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 and "…" not in line for line in shown.splitlines())
    examples = [line.strip() for line in (one.help or "").splitlines() if line.strip().startswith("congruence ")]
    assert set(examples) <= {line.strip() for line in shown.splitlines()}


def test_help_shows_a_default_of_zero(capsys):
    with pytest.raises(SystemExit):
        build("compare")(["compare", "--help"], prog_name="congruence")
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "The same seed gives the same result. [default: 0]" in shown
