"""Write the list of JSON schemas in json.md from the schema files when the site is built."""

import json
from pathlib import Path

SCHEMAS = Path(__file__).parent / "schema"
COMMANDS = {
    "Comparison": "compare, check",
    "LayerComparison": "layers",
    "FeatureMatch": "features",
    "Translation": "translate fit",
    "Resolution": "resolve",
    "ComponentStability": "",
    "Evaluation": "evaluate",
    "Deconfounding": "deconfound",
    "DecoderExamination": "decoder",
    "MechanismExamination": "mechanism",
    "MixtureExamination": "mixture",
    "RecipeResult": "reproduce",
}


def lines():
    """One line of a Markdown table for each schema, in the order of `COMMANDS`."""
    yield "| kind | command | fields of `numbers` |\n|---|---|---|"
    for kind, commands in COMMANDS.items():
        schema = json.loads((SCHEMAS / f"{kind}.json").read_text(encoding="utf-8"))
        numbers = schema["properties"]["numbers"]
        if "$ref" in numbers:
            numbers = schema["$defs"][numbers["$ref"].rpartition("/")[2]]
        fields = ", ".join(f"`{name}`" for name in numbers.get("properties", ()))
        shown = ", ".join(f"`{one}`" for one in commands.split(", ")) if commands else "`component_stability` in Python"
        yield f"| [{kind}](schema/{kind}.json) | {shown} | {fields} |"


def on_page_markdown(markdown, page, **_):
    """Replace the mark in json.md."""
    return markdown.replace("<!-- schemas -->", "\n".join(lines())) if page.file.src_uri == "json.md" else markdown
