"""An unpaired translation as a document: the residual and its nulls, and the agreement of halves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from congruence.document import Cell, Column, Document, Figure, Section, Table, Text, document_of, facts, share
from congruence.formatting import number
from congruence.translation._unpaired_verdict import AGREEMENT, LEAD, LEVEL, SHARED, WITHIN

if TYPE_CHECKING:
    from congruence.translation.result import RowMatching, Translation

GLOSSARY = (
    (
        "residual",
        "the mean distance of a mapped row to the nearest row of the other model, averaged over both directions, in "
        "units of the root mean square distance of old rows from their mean.",
    ),
    ("same model", "the same distance between rows of one model: the least that a perfect map would leave."),
    (
        "permuted (null)",
        "the search on new rows whose principal scores were permuted column by column: the distribution along each "
        "principal direction stays, joint structure does not.",
    ),
    (
        "rearranged (null)",
        "the search on new rows whose whitened principal scores were rotated at random, in blocks of eight directions: "
        "covariance and clusters stay, the arrangement of clusters does not.",
    ),
    (
        "rearranged within clusters (null)",
        "the same for deviations of rows from the mean of their cluster: the arrangement of clusters stays, rows "
        "inside a cluster are unrelated.",
    ),
    ("p value", "one-sided t test of the residual against the searches of a null; the largest over the nulls."),
    ("shared structure", "the residual on a scale from 0 (the nearest null) to 1 (two samples of one model)."),
    (
        "agreement of halves",
        "R² of the images of the new rows under maps fitted on two disjoint halves of the rows; 1 is the same map, "
        "unrelated maps are at about −1.",
    ),
    (
        "lead",
        "how far the residual lies below that of the best different map (R² below 0.8), in standard errors over rows.",
    ),
)


def describe_unpaired(translation: Translation, matching: RowMatching) -> Document:
    """The document of a translation without paired rows."""
    translator = translation.translator
    figure = Figure("matching_residuals", (matching,), brief=True)
    about = Text(
        "The map is a rotation and one scale between the leading principal directions of both models. The search was "
        "repeated on new rows without shared structure (the nulls).",
        muted=True,
    )
    sections = (
        Section("Is the map determined?", (_checks(matching),), id="checks"),
        Section("How small is the residual?", (about, figure, _residuals(matching)), id="residuals"),
    )
    return document_of(
        translation,
        "From a new model to the old one, without paired rows: is the map determined?",
        claim="Is the map determined without paired rows?",
        remark=f"experimental; {matching.rows} rows of each model, {matching.directions} principal directions",
        sections=sections,
        reading=(
            "No row was embedded by both models. If the rows of both are samples of one population, and one model is "
            "the other up to a rotation, the shape of the two sets of rows determines the rotation. Several checks "
            "test this. They cannot show that the populations are the same: only paired rows can confirm the map."
        ),
        glossary=GLOSSARY,
        settings={
            "old rows": translation.n_old,
            "new rows": translation.n_new,
            "old dimensions": translator.d_old,
            "new dimensions": translator.d_new,
        }
        | dict(translation.settings),
        title="From a new model to the old one, without paired rows",
    )


def _checks(matching: RowMatching) -> Table:
    alone = math.isinf(matching.lead)
    rows: list[tuple[str, Any, str, bool]] = [
        ("p value of the residual", matching.p, f"at most {LEVEL:g}", matching.p <= LEVEL),
        (
            "shared structure",
            share(min(matching.shared, 1.0)),
            f"at least {100 * SHARED:g} %",
            matching.shared >= SHARED,
        ),
        (
            "agreement of halves, R²",
            matching.mean_agreement,
            f"at least {AGREEMENT:g}",
            matching.mean_agreement >= AGREEMENT,
        ),
        (
            "agreement within clusters, R²",
            matching.mean_agreement_within,
            f"at least {WITHIN:g}",
            matching.mean_agreement_within >= WITHIN,
        ),
        (
            "lead over the best different map",
            Cell("no different map", math.inf)
            if alone
            else Cell(f"{number(matching.lead)} standard errors", matching.lead),
            f"at least {LEAD:g}",
            matching.lead >= LEAD,
        ),
    ]
    columns = (Column("check", "text"), Column("measured"), Column("required", "text"), Column("passed", "text"))
    return Table("Checks of the map", columns, rows, sortable=False, brief=True)


def _residuals(matching: RowMatching) -> Table:
    nulls = [
        (
            f"{kind} (null)",
            sum(draws) / len(draws),
            f"{number(min(draws))} to {number(max(draws))}, {len(draws)} searches",
        )
        for kind, draws in matching.nulls.items()
        if draws
    ]
    rows: list[tuple[str, Any, str]] = [
        ("same model", matching.same_model, "distance to the nearest row of the same model"),
        ("this map", matching.residual, "the best of all starts"),
        ("best different map", matching.rival, "R² below 0.8 with this map"),
        *nulls,
    ]
    return facts([row for row in rows if math.isfinite(row[1])], "Residuals", brief=True)
