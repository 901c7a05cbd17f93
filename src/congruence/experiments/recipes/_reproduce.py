"""`reproduce`: run a recipe in a folder, resume an interrupted run, reuse a finished one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from congruence.arrays import resolve_device
from congruence.checks import check_choice, check_seed
from congruence.errors import CongruenceWarning, InputError, warn_caller
from congruence.experiments.recipes._files import (
    FILES,
    PARTS,
    RESULT,
    read_figure,
    read_if_there,
    read_numbers,
    write_files,
    write_numbers,
)
from congruence.experiments.recipes._options import ReproduceOptions
from congruence.experiments.recipes.claims import SMOKE, not_judged
from congruence.experiments.recipes.recipe import SCALES, Method, Recipe, RecipeJob, find_recipe
from congruence.experiments.recipes.result import NUMBERS, RecipeFigure, RecipeResult, as_numbers
from congruence.files import alone, check_writable, make_folder, write_text
from congruence.guards import check_folder, reading
from congruence.options import takes
from congruence.parts import Parts, changed_files
from congruence.progress import Progress, no_progress
from congruence.result import json_text, versions

OWNER = "settings.json"  # in the folder of parts, with the settings of the recipe
HOME = Path("reproduced")  # the parent of result folders unless `out` is given
IN_COMMAND = ("scale", "data", "seed", "device")


@takes(ReproduceOptions)
def reproduce(
    name: str,
    out: str | Path | None = None,
    *,
    options: ReproduceOptions,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> RecipeResult:
    """Reproduce a table, figure or example of a paper and write the result into a folder.

    A finished folder is read and not computed again; an interrupted run is resumed from its parts.

    Parameters
    ----------
    name : str
        One of the names in `congruence.experiments.recipes.RECIPES`.
    out : path, optional
        A folder for result.json, table.md, the figures and report.html; created if it does not exist. The default is
        reproduced/NAME-SCALE-seedN.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    announce : callable, optional
        Called with a sentence about what will be computed, if the recipe has one.

    Returns
    -------
    RecipeResult
        One finding for each claim of the paper, the paper's numbers and ours; `folder` holds the files.
    """
    recipe = find_recipe(name)
    check_choice("scale", options.scale, SCALES)
    check_seed(options.seed)
    device = _resolve_device(options.device)
    method = recipe.method()
    parameters = _parameters(method, name, options.scale, options.data)
    folder = _writable_folder(HOME / f"{name}-{options.scale}-seed{options.seed}" if out is None else Path(out))
    settings = {"recipe": name, "edition": method.EDITION, "scale": options.scale, "seed": options.seed}
    settings = json.loads(json_text(settings | {"device": device} | parameters))  # as it will be read back
    shown = settings | {"command": _command(settings)}
    with alone(folder, folder=True):
        _check_owner(folder, settings, options.force)
        if not options.force and (finished := _read_finished(folder, shown)) is not None:
            return finished
        return _compute(recipe, folder, settings, shown, options, progress, announce)


def _compute(
    recipe: Recipe,
    folder: Path,
    settings: Mapping[str, Any],
    shown: Mapping[str, Any],
    options: ReproduceOptions,
    progress: Progress | None,
    announce: Callable[[str], None] | None,
) -> RecipeResult:
    """Compute a result, or the parts of it that are missing, and write it."""
    method, device = recipe.method(), settings["device"]
    parameters = _parameters(method, recipe.name, options.scale, options.data)
    (folder / PARTS).mkdir(exist_ok=True)
    write_text(folder / PARTS / OWNER, json_text(settings))
    parts = Parts(folder / PARTS, settings, kept=not options.force)
    if announce is not None and hasattr(method, "plan"):
        announce(method.plan(parameters, device, parts))
    job = RecipeJob(options.seed, device, parameters, parts, progress or no_progress)
    numbers = as_numbers(method.compute(job))
    (folder / RESULT).unlink(missing_ok=True)  # it would not be that of the new numbers
    result = present(write_numbers(folder, numbers, shown, job.drawn), tuple(job.drawn))
    write_files(result, folder)
    return replace(result, folder=folder)


def rebuild(folder: Path) -> RecipeResult:
    """Make the result of the numbers in a folder again, without computing any."""
    check_folder(folder)
    kept = read_numbers(folder)
    with reading(folder / NUMBERS, "the numbers of a recipe"):
        drawn = tuple(read_figure(folder, name, about["caption"]) for name, about in kept["drawn"].items())
        return present(kept, drawn)


def present(kept: Mapping[str, Any], drawn: tuple[RecipeFigure, ...]) -> RecipeResult:
    """Make the result of the numbers that `write_numbers` kept, and of figures that were drawn while computing.

    Nothing is judged at the smoke scale.
    """
    settings, ours, recipe = kept["settings"], kept["ours"], find_recipe(kept["settings"]["recipe"])
    method, smoke = recipe.method(), settings["scale"] == "smoke"
    made = method.present(ours, settings)
    notes = [note.format(**{**settings, **made.words}) for note in recipe.notes]
    return RecipeResult(
        recipe=recipe,
        headlines=(SMOKE,) if smoke else made.headlines,
        findings=tuple(map(not_judged, made.findings)) if smoke else made.findings,
        paper={**recipe.paper, **made.paper},
        ours=ours,
        tables=made.tables,
        figures=(*made.figures, *drawn),
        notes=(*notes, *made.notes, *_provenance(kept, method)),
        terms=(*recipe.terms, *made.terms),
        settings=settings,
    )


def _provenance(kept: Mapping[str, Any], method: Method) -> Iterator[str]:
    """Say which numbers are older than their judgement, and which figures are not made of the kept numbers."""
    settings, version = kept["settings"], kept["versions"].get("congruence")
    if version is None or settings["edition"] != method.EDITION:
        yield (
            f"Old numbers, new judgement: the numbers were measured by edition {settings['edition']} of this recipe "
            f"(its edition is {method.EDITION} now) on {settings['device']}, and are unchanged. Claims, tables and "
            "figures were made again from them, by the rules shown."
        )
    if kept["drawn"]:
        yield f"Drawn during the computation, from numbers that were not kept: {', '.join(kept['drawn'])}."


def _parameters(method: Method, name: str, scale: str, data: str | None) -> dict[str, Any]:
    """The parameters of a scale, with another data set if one is asked for."""
    parameters = dict(method.PARAMETERS[scale])
    if data is None:
        return parameters
    known = getattr(method, "DATA", ())
    if not known:
        raise InputError(f"{name} generates its own data, so data cannot be {data!r}")
    names = [name.strip() for name in data.split(",")] if getattr(method, "SEVERAL", False) else [data]
    for name in names:
        check_choice("data", name, known)
    if isinstance(known, Mapping):
        parameters = dict(known[data][scale])
    return parameters | {"data": ",".join(dict.fromkeys(names))}


def _resolve_device(device: str) -> str:
    """Turn "auto" into a GPU if torch sees one."""
    if device != "auto":
        return resolve_device(device)
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _writable_folder(folder: Path) -> Path:
    """Create the folder, and refuse one that cannot be written to before anything is computed."""
    make_folder(folder)
    for file in FILES:
        check_writable(folder / file)
    if (folder / PARTS).is_dir():
        check_writable(folder / PARTS / OWNER)
    return folder


def _check_owner(folder: Path, settings: Mapping[str, Any], force: bool) -> None:
    """Refuse to overwrite files that no recipe wrote, and other results unless `force` is given."""
    owner = read_if_there(folder / PARTS / OWNER)
    if owner is None:
        foreign = [file for file in (*FILES, PARTS) if (folder / file).exists()]
        if foreign:
            raise InputError(f"{folder} holds {foreign[0]}, which no recipe wrote; give another folder")
        return
    if owner != settings and (owner.get("recipe") != settings["recipe"] or not force):
        other = ", ".join(f"{key} {owner.get(key)}" for key in ("scale", "seed", "device", "edition"))
        advice = "give another folder"
        advice += ", or force to replace it" if owner.get("recipe") == settings["recipe"] else ""
        raise InputError(f"{folder} holds {owner.get('recipe')} with other settings ({other}); {advice}")


def _read_finished(folder: Path, settings: Mapping[str, Any]) -> RecipeResult | None:
    """The result in the folder, if it is complete and has these settings."""
    content = read_if_there(folder / RESULT)
    if content is None or content.get("settings") != settings:
        return None
    try:
        result = rebuild(folder)
    except InputError:
        return None
    if changed := [name for name in changed_files(folder) if (folder / name).exists()]:
        text = f"{folder / changed[0]} is not as it was written; it is written again from finished parts"
        warn_caller(text, CongruenceWarning)
        return None
    if not all((folder / file).is_file() for file in (*FILES, *(f"{one.name}.svg" for one in result.figures))):
        return None
    made, now = read_numbers(folder)["versions"], versions()
    other = [f"{name} {one}" for name, one in made.items() if now.get(name) != one]
    notes = (f"This result was computed earlier, with other versions: {', '.join(other)}.",) if other else ()
    return replace(result, notes=(*result.notes, *notes), folder=folder, reused=True)


def _command(settings: Mapping[str, Any]) -> str:
    """The command that computes this result, wherever it is written to."""
    flags = [f"--{name}={settings[name]}" for name in IN_COMMAND if name in settings]
    return shlex.join(["congruence", "reproduce", settings["recipe"], *flags])
