"""Renderers of documents: HTML page, notebook cell, terminal text, Markdown; and the figures of results."""

from congruence.report.csv import rows_to_csv as rows_to_csv
from congruence.report.layers import layer_picture as layer_picture
from congruence.report.layers import render_layers as render_layers
from congruence.report.layers import write_layers_report as write_layers_report
from congruence.report.mechanism import render_mechanism as render_mechanism
from congruence.report.mechanism import write_mechanism_report as write_mechanism_report
from congruence.report.mixture import render_mixture as render_mixture
from congruence.report.mixture import write_mixture_report as write_mixture_report
from congruence.report.reproduction import render_reproduction as render_reproduction
from congruence.report.reproduction import write_reproduction_report as write_reproduction_report
