"""`congruence check`: did my embeddings change since the baseline?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

from congruence.align._limits import check_gates
from congruence.align._options import CheckOptions
from congruence.cli import _command as cli
from congruence.cli._gates import FailAbove, FailOn, exit_by_gates, record_gates
from congruence.errors import InputError, printable_lines
from congruence.options import DATA, OUTPUT, option

if TYPE_CHECKING:
    from congruence.gates import Gate


@dataclass(frozen=True)
class CheckOutputs(cli.Outputs):
    """Outputs of `check`."""

    junit: Path | None = option(None, "Write the gates as JUnit XML.", panel=OUTPUT)


@cli.command
def check(
    options: CheckOptions,
    outputs: CheckOutputs,
    new: Annotated[Optional[str], cli.argument("The embeddings to check, or to save.", metavar="FILE")] = None,
    baseline: Annotated[
        Optional[str],
        cli.flag(help="What --save wrote, or another embedding file.", panel=DATA, metavar="FILE"),
    ] = None,
    save: Annotated[
        Optional[Path],
        cli.flag(help="Save a sample of the rows as a baseline.", panel=OUTPUT, metavar="FILE"),
    ] = None,
    canary: Annotated[
        Optional[Path],
        cli.flag(help="Write fifty sentences to embed, one in a line, and stop.", panel=OUTPUT, metavar="FILE"),
    ] = None,
    fail_on: FailOn = None,
    fail_above: FailAbove = None,
    allow_unknown: Annotated[
        bool, cli.flag("--allow-unknown", help="Accept the status unknown.", panel=OUTPUT)
    ] = False,
) -> None:
    """Did my embeddings change since the baseline?

    Prints one line of Markdown. The exit code is 0 if the status is holds, 1 if
    it is another one or a limit is exceeded, 2 if the input is wrong. With
    --fail-above, the limits decide, and the status unknown fails. Examples:

        congruence check embeddings.parquet --save baseline.safetensors

        congruence check new.parquet --baseline baseline.safetensors

        congruence check new.npy --baseline old.npy --fail-above similarity=0.3
    """
    if canary is not None:
        from congruence.files import check_writable, write_text
        from congruence.testing import CANARY

        write_text(check_writable(canary), "".join(f"{sentence}\n" for sentence in CANARY))
        return
    if new is None or (baseline is None) == (save is None):
        raise InputError("check takes a FILE and either --baseline FILE or --save FILE")
    if save is not None:
        _save(new, save, options, outputs)
        return
    from congruence.align._allowed import summary
    from congruence.align._check import check as check_rows

    gating = check_gates(options, fail_above or [], None if fail_on is None else cli.listed(fail_on), allow_unknown)
    cli.check_outputs(outputs, [new, str(baseline)], {"junit": outputs.junit})
    with cli.working(outputs) as progress:
        result = check_rows(new, baseline, options=gating.options, progress=progress)
    gates = gating.apply(result)
    result = record_gates(result, gates)
    if outputs.junit is not None:
        _write_junit(outputs.junit, gates, result.verdict)
    cli.deliver(result, replace(outputs, quiet=True))
    if not outputs.quiet:
        to_stdout = any(str(path) == "-" for path in outputs.files().values())
        cli.say(summary(result, not any(gate.exceeded for gate in gates)), err=to_stdout)
        for note in result.notes:
            cli.say(f"note: {note}")
    exit_by_gates(gates)


def _save(new: str, path: Path, options: CheckOptions, outputs: CheckOutputs) -> None:
    from congruence.align._baseline import save_baseline

    if outputs.files() or outputs.junit:
        raise InputError("--save writes a baseline and nothing else; check it with --baseline")
    cli.check_outputs(outputs, [new], {"save": path})
    with cli.working(outputs):
        saved = save_baseline(new, path, options=options)
    cli.say_warnings()
    if not outputs.quiet:
        for note in saved.table.notes:
            cli.say(f"note: {note}")
        cli.say(f"baseline of {saved.table.n} of {saved.of} rows × {saved.table.d} dimensions written: {path}")


def _write_junit(path: Path, gates: Sequence[Gate], verdict: str) -> None:
    """One test case for each gate, failed where it is exceeded."""
    from xml.etree import ElementTree

    from congruence.files import write_text

    failures = str(sum(gate.exceeded for gate in gates))
    suite = ElementTree.Element("testsuite", name="congruence check", tests=str(len(gates)), failures=failures)
    suite.set("errors", "0")
    for gate in gates:
        case = ElementTree.SubElement(suite, "testcase", classname="congruence.check", name=f"{gate.of}: {gate.name}")
        if gate.exceeded:
            ElementTree.SubElement(case, "failure", message=gate.message).text = verdict
    ElementTree.indent(suite)
    write_text(path, printable_lines(ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)) + "\n")
