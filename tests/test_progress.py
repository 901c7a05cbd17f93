"""The remaining time, on simulated clocks, and the bar on a terminal."""

import os
import pty
import signal
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from congruence.progress import RemainingTime, Steps, show_progress


class Clock:
    """A clock that moves only when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def run(costs, total=None, names="work", clock=None, remaining=None):
    """Take steps of these costs; the remaining time that was shown after each, None where there was none."""
    clock = clock or Clock()
    remaining = remaining or RemainingTime(clock)
    step, shown = Steps(remaining, total or len(costs)), []
    for i, cost in enumerate(costs):
        clock.now += cost
        step(names if isinstance(names, str) else names[i])
        estimate = remaining.estimate()
        shown.append(None if estimate is None else estimate[1])
    return shown


def test_steps_of_one_cost_are_predicted_exactly():
    shown = run([2.0] * 50)
    assert shown[:2] == [None, None]
    np.testing.assert_allclose(shown[2:], [2.0 * left for left in range(47, -1, -1)])


def test_one_step_says_nothing():
    remaining = RemainingTime(clock := Clock())
    step = Steps(remaining, 1)
    clock.now += 1000
    assert remaining.estimate() is None
    step("all of it")
    assert (remaining.estimate(), str(remaining)) == (None, "")


def test_after_the_last_step_no_time_is_promised():
    remaining = RemainingTime(clock := Clock())
    run([1.0] * 10, clock=clock, remaining=remaining)
    assert str(remaining) == ""


def test_kinds_that_are_expected_count_with_their_own_cost():
    names = ["preparing a", "preparing b", *["unmixing a", "unmixing b"] * 3, *["a -> b"] * 20]
    costs = [5.0, 5.0, *[1.0] * 6, *[0.1] * 20]
    plan = {"preparing": 2, "unmixing": 6, "": 20}
    shown = run(costs, plan, names)
    left = np.cumsum(costs[::-1])[::-1]
    np.testing.assert_allclose(shown[8:-1], left[9:])


def test_kinds_that_were_not_seen_make_it_a_lower_bound():
    remaining = RemainingTime(clock := Clock())
    run([1.0] * 4, {"fast": 10, "slow": 2}, "fast", clock, remaining)
    assert remaining.estimate() == (1.0, 6.0, True)
    assert str(remaining) == "1.0 s/step, more than 0:00:06 left"
    for done in range(5, 11):
        clock.now += 1
        remaining("fast", done, 12)
    assert remaining.estimate() is None  # of the slow ones nothing is known


def test_alternating_kinds_that_nobody_announced():
    costs = [4.0, *[0.2] * 9] * 10
    names = ["fit 1", *[f"null {k}" for k in range(9)]] * 10
    shown, left = run(costs, names=names), np.cumsum(costs[::-1])[::-1]
    np.testing.assert_allclose(shown[9:99:10], left[10::10], rtol=0.05)  # after each group of ten
    np.testing.assert_allclose(shown[20:99], left[21:], atol=0.3 * sum(costs))  # within one


def test_a_stall_holds_the_time_and_does_not_raise_it():
    remaining = RemainingTime(clock := Clock())
    before = run([1.0] * 20, 100, clock=clock, remaining=remaining)[-1]
    waits = []
    for _ in range(50):
        clock.now += 2
        waits.append(remaining.estimate()[1])
    assert waits == [before - 1] * 50  # the step that stalls is due, those after it are not
    remaining("work", 21, 100)
    assert remaining.estimate()[1] == pytest.approx(79)


def test_steps_that_became_slower_are_believed():
    assert run([*[1.0] * 40, *[3.0] * 40], 100)[-1] == pytest.approx(20 * 3, rel=0.25)


@given(st.lists(st.floats(0.5, 4), min_size=12, max_size=80), st.integers(1, 100))
def test_the_time_never_jumps_up(costs, more):
    """With steps up to eight times as long as others, one step raises it by less than a third."""
    shown = run(costs, len(costs) + more)[9:]
    for before, after in pairwise(shown):
        assert after < before * 4 / 3


def test_rows_in_batches():
    remaining = RemainingTime(clock := Clock())
    for done in range(0, 641, 64):
        remaining("extracting", done, 10_000)
        clock.now += 0.64
    clock.now -= 0.64
    cost, left, more = remaining.estimate()
    assert (cost, left, more) == (pytest.approx(0.01), pytest.approx(93.6), False)
    assert str(remaining) == "100 steps/s, 0:01:34 left"


def test_another_count_begins_anew():
    remaining = RemainingTime(clock := Clock())
    run([9.0] * 10, clock=clock, remaining=remaining)
    remaining("next", 0, 20)
    assert remaining.estimate() is None
    for done in range(1, 6):
        clock.now += 0.5
        remaining("next", done, 20)
    assert remaining.estimate()[1] == pytest.approx(7.5)


def test_nothing_is_drawn_where_nobody_looks(capsys):
    for quiet in (False, True):
        with show_progress(quiet) as progress:
            progress("work", 1, 2)
    assert capsys.readouterr() == ("", "")


WORK = """
import sys, time
import congruence.progress as p
p.WAIT = float(sys.argv[1])
try:
    with p.show_progress(quiet=sys.argv[3] == "quiet") as progress:
        for done in range(int(sys.argv[2])):
            time.sleep(0.05)
            progress("step of [a].npy", done + 1, int(sys.argv[2]))
except KeyboardInterrupt:
    print("stopped", file=sys.stderr)
"""


def on_terminal(*arguments, interrupt=False):
    """What a program writes to a terminal that is its stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", WORK, *map(str, arguments)]
    settings = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stderr=theirs, env=settings) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
            if interrupt and b" left" in seen:
                process.send_signal(signal.SIGINT)
                interrupt = False
    os.close(ours)
    assert process.returncode == 0
    return seen.decode()


def test_a_bar_with_rate_and_time_is_drawn_and_removed():
    seen = on_terminal(0.1, 25, "")
    for text in ("step of [a].npy", "steps/s", "0:00:0", " left", "/25"):
        assert text in seen
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") == 1  # the cursor is hidden, then shown
    assert seen.endswith("\x1b[2K")  # the line is erased


@pytest.mark.parametrize("arguments", [(60, 3, ""), (0.01, 10, "quiet")], ids=["short", "quiet"])
def test_no_bar(arguments):
    assert on_terminal(*arguments) == ""


def test_ctrl_c_leaves_a_clean_terminal():
    seen = on_terminal(0.1, 10_000, "", interrupt=True)
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") == 1
    assert seen.endswith("\x1b[2Kstopped\r\n")
