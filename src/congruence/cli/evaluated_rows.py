"""The codes and the factors that `congruence evaluate` was given, brought into the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from congruence.errors import InputError
from congruence.runs import LATENTS

if TYPE_CHECKING:
    from congruence.ica.latents import LatentComponents
    from congruence.runs import Run
    from congruence.tables import CodesAndFactors

NAMES = {"centred": " + ICA", "as is": " + ICA, not centred", "whitened": " + ICA, whitened"}


def read_given(
    codes: Path,
    factors: Path | None,
    columns: str | None,
    *,
    group_by: str | None,
    drop_missing: bool,
    wishes: Mapping[str, str | None],
) -> CodesAndFactors:
    """Read codes and factors and pair their rows; `columns` names the factors, in their file or beside the codes."""
    from congruence.tables import pair

    if not any(c in str(codes) for c in "*?[") and not codes.exists():
        raise InputError(f"there is no file and no run folder {codes}")
    if factors is None and columns is None:
        raise InputError("evaluate takes a file of codes and one of factors, or --factors with columns of the codes")
    return pair(codes, factors, columns=columns, cluster=group_by, drop_missing=drop_missing, **wishes)


def read_run(
    run: Run, factors: Path | None, columns: str | None, *, wishes: Mapping[str, str | None]
) -> CodesAndFactors:
    """The codes and the factors that a training has written into its run folder."""
    if factors is not None:
        raise InputError(f"{run.folder} is a run folder, which has its own factors; leave {factors} out")
    for name, value in wishes.items():
        if value is not None:
            raise InputError(f"--{name} means nothing for a run folder such as {run.folder}")
    about = run.config.get("data")
    known = about.get("factors") if isinstance(about, dict) else None
    if not known:
        raise InputError(f"the data that {run.folder} was trained on has no factors, so nothing can be evaluated")
    if not (isinstance(known, list) and all(isinstance(one, str) for one in known)):
        raise InputError(f"the config of {run.folder} is damaged: factors must be a list of names, not {known!r}")
    latents = run.folder / LATENTS
    if not latents.exists():
        raise InputError(f"there is no {latents}; the training may not be over")
    nothing = dict.fromkeys(("id", "features", "metadata", "key"))
    found = read_given(latents, None, columns or ",".join(known), group_by=None, drop_missing=False, wishes=nothing)
    return replace(found, name=run.name)


@dataclass(frozen=True, eq=False)
class Unmixed:
    """Rows whose codes are independent components of other codes, and these components."""

    rows: CodesAndFactors
    components: LatentComponents


def unmixed(rows: CodesAndFactors, *, discrete_codes: bool, seed: int) -> list[Unmixed]:
    """The independent components of codes in every way: centred, not centred, and whitened."""
    from congruence.ica.latents import WAYS, latent_components

    if discrete_codes:
        raise InputError(f"--ica takes codes that are numbers, but those of {rows.name} are classes")
    found = []
    for way in WAYS:
        one = latent_components(rows.codes, way=way, seed=seed)
        called = tuple(f"component{j}" for j in range(one.k))
        name = rows.name + NAMES[way]
        notes = () if one.converged else (f"{name}: components did not settle, so their axes may be arbitrary.",)
        turned = replace(rows, name=name, codes=one.transform(rows.codes), code_names=called, notes=notes)
        found.append(Unmixed(turned, one))
    return found
