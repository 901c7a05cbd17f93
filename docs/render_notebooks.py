"""Run the notebooks (`docs/notebooks/*.py`, cells begin with `# %%`) when the site is built, and show their output."""

import ast
import base64
import contextlib
import io
import re
import tempfile
import textwrap
from pathlib import Path

from mkdocs.structure.files import File

CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)


def on_files(files, config):
    """Add a page for each notebook."""
    for path in sorted(Path(config.docs_dir, "notebooks").glob("*.py")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=render(path)))
    return files


def render(path):
    """The Markdown of a notebook with the output of its cells. An exception in a cell ends the build."""
    import matplotlib

    matplotlib.use("Agg")
    _, *parts = CELL.split(path.read_text(encoding="utf-8"))
    names, pages = {"__name__": "__main__"}, []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for kind, text in zip(parts[::2], parts[1::2], strict=True):
            if "markdown" in kind:
                pages.append(textwrap.dedent(re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)))
            else:
                pages += [f"```python\n{text.strip()}\n```", *run(text, names, f"{path.name}")]
    source = f"*This page is the output of* `docs/notebooks/{path.name}`*, run when the documentation was built.*"
    return "\n\n".join([*pages, source])


def run(code, names, name):
    """Execute a cell; yield what it prints, the value of its last expression and its figures."""
    from matplotlib import pyplot as plt

    *body, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        body, last = [*body, last], None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), name, "exec"), names)
        if last:
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)
    if printed.getvalue():
        yield f"``` {{ .text .wrap }}\n{printed.getvalue().rstrip()}\n```"
    if hasattr(value, "_repr_html_"):
        yield '<div class="output">' + value._repr_html_().replace("\n", " ") + "</div>"
    elif value is not None and not plt.get_fignums():
        shown = value if isinstance(value, str) else repr(value)
        yield f"``` {{ .text .wrap }}\n{shown}\n```"
    for number in plt.get_fignums():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", dpi=110, bbox_inches="tight")
        plt.close(number)
        yield f'<img alt="figure" src="data:image/png;base64,{base64.b64encode(image.getvalue()).decode()}">'
