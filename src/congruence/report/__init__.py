"""Renderers of documents: HTML page, notebook cell, terminal text, Markdown; and the figures of results."""

from congruence.report.csv import rows_to_csv as rows_to_csv
from congruence.report.decoder import render_decoder as render_decoder
from congruence.report.decoder import write_decoder_report as write_decoder_report
from congruence.report.deconfounding import render_deconfounding as render_deconfounding
from congruence.report.deconfounding import write_deconfounding_report as write_deconfounding_report
from congruence.report.evaluation import render_evaluation as render_evaluation
from congruence.report.evaluation import write_evaluation_report as write_evaluation_report
from congruence.report.layers import layer_picture as layer_picture
from congruence.report.layers import render_layers as render_layers
from congruence.report.layers import write_layers_report as write_layers_report
from congruence.report.mechanism import render_mechanism as render_mechanism
from congruence.report.mechanism import write_mechanism_report as write_mechanism_report
from congruence.report.mixture import render_mixture as render_mixture
from congruence.report.mixture import write_mixture_report as write_mixture_report
from congruence.report.resolution import render_resolution as render_resolution
from congruence.report.resolution import write_resolution_report as write_resolution_report
from congruence.report.translation import render_translation as render_translation
from congruence.report.translation import write_translation_report as write_translation_report
