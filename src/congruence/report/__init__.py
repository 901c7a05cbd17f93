"""What a comparison looks like outside Python: one HTML page, a CSV file, a LaTeX table, SVG figures.

`write_report` and `render` make the page, `to_csv` and `to_latex` the tables, `congruence.report.figures` the
figures. Only result objects come in here. matplotlib and jinja2 are imported when a page is made, not before.
"""

from congruence.report.html import render, write_report
from congruence.report.tables import to_csv, to_latex

__all__ = ["render", "to_csv", "to_latex", "write_report"]
