"""A comparison of layers as a document: a heat map of all pairs, and the closest layer of each."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from congruence.align.similarities import MEASURES
from congruence.document import Column, Document, Figure, Section, Table, Text, badge, document_of, share
from congruence.formatting import number, percent
from congruence.maps._names import AFTER, MEANINGS
from congruence.result import STATUSES

if TYPE_CHECKING:
    from congruence.align.layer_comparison import LayerComparison

SHOWN = 60  # layers of each run in the picture; the table has all
ERROR = (
    "the distance between a mapped row and its target, averaged over rows that the map was not fitted on, as a "
    "percentage of chance: of the same error for randomly re-paired rows. The JSON and csv also have it as a share of "
    "the target layer’s diameter (the largest distance between two of its rows), as in the papers."
)
ABOVE_CHANCE = (
    "the position of a pair between its null (0 %) and a perfect match (100 %). Layers differ in shape, and so in "
    "their null, so they are compared by this."
)
P_VALUE = (
    "the share of re-pairings, the true pairing counted as one, in which some pair of layers is as close as this one, "
    "each measured in standard deviations of its own null. All pairs get the same re-pairings. A layer is closer than "
    "chance if the smallest p of its pairs is at most 0.05; of unrelated runs, 5 % have any such layer."
)

SEEDS = (
    "of the mean over pairs of seeds (of held-out errors, as a share of the diameter), for new seeds and new rows: "
    "variances over the seeds of each run and over tenths of the rows are added, with Student’s t."
)


def describe(layers: LayerComparison) -> Document:
    """The document of a comparison of layers."""
    title = (
        f"Held-out error, % of {'chance' if layers.judged else 'the diameter'}" if layers.held_out else layers.measure
    )
    picture = Figure("layer_picture", (layers,), wide=True, brief=True, title=title, options={"most": SHOWN})
    glossary = [("error", ERROR), (layers.measure, f"{MEANINGS.get(layers.measure, '')}: the maps that are fitted.")]
    settings = {
        "runs": f"{layers.source}, {layers.target}",
        "layers": f"{len(layers.source_layers)} and {len(layers.target_layers)}",
        "paired rows": layers.n,
        **({} if layers.by_seed is None else {"pairs of seeds": "{} x {}".format(*layers.by_seed.shape[:2])}),
    }
    return document_of(
        layers,
        f"Which layers of {layers.source} and {layers.target} are alike?",
        claim="Is every layer closer to some layer than chance?",
        remark=_remark(layers),
        sections=(
            Section("How close is every layer to every other?", (_legend(layers), picture), id="picture"),
            Section("The closest layer of each", (_closest(layers),), id="nearest"),
        ),
        reading=(
            "Two runs (models, or trainings of one model) embed the same rows, layer by layer. If layers of the same "
            "depth do the same work, the strong colours lie along the diagonal. A block of strong colours is a series "
            "of layers that hardly change their input."
        ),
        glossary=(
            *(glossary if layers.held_out else ()),
            ("null", "the same number for randomly re-paired rows, as for unrelated layers."),
            ("above chance", ABOVE_CHANCE),
            ("p", P_VALUE),
            *((("95 % interval", SEEDS),) if layers.interval is not None else ()),
        ),
        settings=settings | dict(layers.settings),
        about=f"Layers of {layers.source} and {layers.target}",
    )


def _remark(layers: LayerComparison) -> str:
    statuses = Counter(finding.status for finding in layers.findings)
    counts = ", ".join(f"{status} for {statuses[status]}" for status in STATUSES if statuses[status])
    total = f"{counts} of {len(layers.source_layers)} layers; " if len(statuses) > 1 else ""
    return f"{total}{layers.n} rows, paired {layers.settings.get('paired', 'by position')}"


def _legend(layers: LayerComparison) -> Text:
    """The meaning of the numbers and the colours of the heat map."""
    if layers.held_out:
        numbers = (
            f"the held-out error {AFTER[layers.measure]} from a layer of {layers.source} to one of {layers.target}, "
            f"in % of {'chance' if layers.judged else 'the diameter of the latter'}; lower is closer"
        )
    else:
        numbers = f"{MEASURES[layers.measure].title}, in sample; {layers.direction}"
    colours = (
        "from chance (faint) to a perfect match (strong). A frame marks the closest layer of each row, where it is "
        "closer than chance."
        if layers.judged
        else "the stronger, the closer."
    )
    many = max(len(layers.source_layers), len(layers.target_layers)) > SHOWN
    return Text(f"Numbers: {numbers}. Colours: {colours}{f' The first {SHOWN} layers are drawn.' if many else ''}")


def _interval(layers: LayerComparison, i: int, j: int) -> tuple[str | None, ...]:
    """The interval over seeds and rows as a cell; nothing where there is one seed."""
    if layers.interval is None:
        return ()
    low, high = (float(end[i, j]) for end in layers.interval)
    if j < 0 or not math.isfinite(low):
        return (None,)
    written = percent if layers.held_out else number
    return (f"{written(low)} to {written(high)}",)


def _closest(layers: LayerComparison) -> Table:
    rows: list[tuple[Any, ...]] = []
    for i, (layer, j, finding) in enumerate(zip(layers.source_layers, layers.nearest, layers.findings, strict=True)):
        if j < 0:
            rows.append((layer, None, badge(finding.status), None, None, None, None, *_interval(layers, i, j)))
            continue
        value, null, of_chance, above, p = (
            float(x[i, j])
            for x in (layers.nearness, layers.null, layers.share_of_chance, layers.above_chance, layers.p)
        )
        cells = (share(of_chance), share(value), share(null)) if layers.held_out else (value, null, share(above))
        rows.append((layer, layers.target_layers[j], badge(finding.status), *cells, p, *_interval(layers, i, j)))
    held_out = ("of chance", "of the diameter", "null")
    columns = (
        Column(f"layer of {layers.source}", "name"),
        Column(f"closest of {layers.target}", "name"),
        Column("closer than chance", "text"),
        *map(Column, held_out if layers.held_out else (layers.measure, "null", "above chance")),
        Column("p"),
        *((Column("95 % interval", "text"),) if layers.interval is not None else ()),
    )
    unit = "held-out error, % of chance" if layers.held_out else f"{layers.measure}, {layers.direction}"
    return Table(f"The closest layer of each: {unit}", columns, rows, brief=True)
