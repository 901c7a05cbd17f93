import gc
import os
import signal
import subprocess
import sys
import time

import pytest

from congruence.errors import InputError, Terminated
from congruence.experiments.processes import HANGUP, exit_on_signals, run_tasks, send_message, stop_requested


@pytest.mark.parametrize("workers", [1, 2])
def test_all_tasks_are_done_and_reported(tmp_path, workers):
    reports = []
    run_tasks(os.mkdir, [(str(tmp_path / name),) for name in "ab"], workers, lambda *now: reports.append(now))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert reports == [(0, 2), (1, 2), (2, 2)]


def test_a_task_that_fails_says_so(tmp_path):
    with pytest.raises(FileExistsError):
        run_tasks(os.mkdir, [(str(tmp_path),)] * 2, 2, lambda *now: None)


def test_a_process_that_dies_is_reported_in_a_sentence():
    with pytest.raises(InputError, match="was killed; the same call resumes"):
        run_tasks(os._exit, [(1,), (1,)], 2, lambda *now: None)


def test_a_script_without_a_guard_is_told_to_add_one(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from congruence.experiments.processes import run_tasks\nrun_tasks(pow, [(2, 3), (3, 2)], 2)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 1
    assert 'inside `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]


def test_no_task_is_no_work():
    run_tasks(os.mkdir, [], 2, lambda *now: None)


def test_results_come_in_order_with_the_messages_of_tasks():
    received = []
    assert run_tasks(pow, [(2, 3), (3, 2)], 2, receive=received.append) == [8, 9]
    run_tasks(send_message, [("a",), ("b",)], 2, receive=received.append)
    assert sorted(received) == ["a", "b"]
    assert not stop_requested()


@pytest.mark.parametrize("number", [signal.SIGTERM, HANGUP, signal.SIGINT])
def test_a_signal_that_arrives_while_garbage_is_collected_is_not_lost(number, capsys):
    def collecting(phase, info):  # as that of dask
        if phase == "stop":
            gc.callbacks.remove(collecting)
            signal.raise_signal(number)

    gc.callbacks.append(collecting)
    with pytest.raises((Terminated, KeyboardInterrupt)), exit_on_signals():
        gc.collect()
        time.sleep(30)
    assert collecting not in gc.callbacks
    assert capsys.readouterr().err == ""
