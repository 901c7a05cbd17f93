"""Write the command line reference from the program itself when the site is built."""

import inspect
import re

from congruence.cli import build


def describe(name, command):
    """One command as Markdown: what it does, and a table of arguments and options."""
    if inner := getattr(command, "commands", None):
        for part, one in inner.items():
            yield from describe(f"{name} {part}", one)
        return
    yield f"## congruence {name}\n"
    text = inspect.cleandoc(command.help or "").replace("\b", "")
    text = re.sub(r"^(    .+)\n\n(?=    )", r"\1\n", text, flags=re.MULTILINE)  # examples without empty lines
    yield (
        re.sub(r"^(.+)\n-+\n+", r"\1:\n\n", text, flags=re.MULTILINE) + "\n"
    )  # sections of a docstring are no headings here
    yield "| argument or option | default | meaning |\n|---|---|---|"
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        names = [*parameter.opts, *parameter.secondary_opts]
        if parameter.param_type_name == "argument":
            names = [parameter.metavar or parameter.name.upper()]
        written = ", ".join(f"`{one}`" for one in names)
        default = parameter.opts[0] if parameter.default is True else parameter.default
        shown = "" if default is None or default is False or default == () or callable(default) else f"`{default}`"
        meaning = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|").replace("<", "&lt;")
        yield f"| {written} | {shown} | {meaning} |"
    yield ""


def on_page_markdown(markdown, page, **_):
    """Replace the mark in command-line.md."""
    if page.file.src_uri != "command-line.md":
        return markdown
    commands = [line for name, command in build().commands.items() for line in describe(name, command)]
    return markdown.replace("<!-- commands -->", "\n".join(commands))
