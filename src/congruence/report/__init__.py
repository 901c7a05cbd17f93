"""What results look like outside Python: HTML pages, a CSV file, a LaTeX table, SVG figures.

`render` and `write_report` make the page of a comparison, `render_translation` and `write_translation_report` that of
a translation, `render_resolution` and `write_resolution_report` that of a resolution, `render_evaluation` and
`write_evaluation_report` that of codes against factors, `render_decoder` and `write_decoder_report` that of a decoder,
`render_deconfounding` and `write_deconfounding_report` that of an embedding on batches held out,
`render_mechanism` and `write_mechanism_report` that of blocks of latents and where they act, `render_mixture` and
`write_mixture_report` that of models with a mixture prior, `render_layers` and `write_layers_report` that of a map of
layers (`layer_picture` its figure),
`render_reproduction` and `write_reproduction_report` that of a reproduction, `to_csv` and `to_latex` the tables,
`congruence.report.figures` the figures. Only result objects come in here. matplotlib and jinja2 are imported when a
page is made, not before.
"""

from congruence.report.decoder import render_decoder, write_decoder_report
from congruence.report.deconfounding import render_deconfounding, write_deconfounding_report
from congruence.report.evaluation import render_evaluation, write_evaluation_report
from congruence.report.html import render, write_report
from congruence.report.layers import layer_picture, render_layers, write_layers_report
from congruence.report.mechanism import render_mechanism, write_mechanism_report
from congruence.report.mixture import render_mixture, write_mixture_report
from congruence.report.reproduction import render_reproduction, write_reproduction_report
from congruence.report.resolution import render_resolution, write_resolution_report
from congruence.report.tables import rows_to_csv, to_csv, to_latex
from congruence.report.translation import render_translation, write_translation_report

__all__ = [
    "layer_picture",
    "render",
    "render_decoder",
    "render_deconfounding",
    "render_evaluation",
    "render_layers",
    "render_mechanism",
    "render_mixture",
    "render_reproduction",
    "render_resolution",
    "render_translation",
    "rows_to_csv",
    "to_csv",
    "to_latex",
    "write_decoder_report",
    "write_deconfounding_report",
    "write_evaluation_report",
    "write_layers_report",
    "write_mechanism_report",
    "write_mixture_report",
    "write_report",
    "write_reproduction_report",
    "write_resolution_report",
    "write_translation_report",
]
