"""Make one page of each section of reference.md when the site is built, and of reference.md a list of their entries."""

import re
from importlib import import_module
from pathlib import Path

from mkdocs.structure.files import File

SOURCE = Path(__file__).with_name("reference.md")


def sections():
    """Title, address and text of each section."""
    _, *parts = re.split(r"^## (.+)$", SOURCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        yield title, f"reference/{title.lower().replace(' ', '-')}.md", text


def entries(name):
    """A name, or those that a module defines and documents."""
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return [name]
    return [
        f"{name}.{one}"
        for one, thing in vars(module).items()
        if not one.startswith("_") and callable(thing) and thing.__module__ == name and thing.__doc__
    ]


def on_config(config):
    """List the pages in the navigation, after reference.md."""
    part = next(part["Reference"] for part in config.nav if isinstance(part, dict) and "Reference" in part)
    part.append({"Python by topic": [address for _, address, _ in sections()]})
    return config


def on_files(files, config):
    """Add the pages."""
    for title, address, text in sections():
        files.append(File.generated(config, address, content=f"# {title}\n{text}"))
    return files


def on_page_markdown(markdown, page, **_):
    """Replace the entries of reference.md by links."""
    if page.file.src_uri != "reference.md":
        return markdown
    lines = ["# Python", "| topic | entries |\n|---|---|"]
    for title, address, text in sections():
        names = [one for name in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE) for one in entries(name)]
        links = ", ".join(f"[`{name.rpartition('.')[2]}`][{name}]" for name in dict.fromkeys(names))
        lines.append(f"| [{title}]({address}) | {links} |")
    return "\n".join([lines[0], "", *lines[1:]])
