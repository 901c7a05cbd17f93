"""JSON schemas of results, derived from their types.

The schema of a result is that of all results (`Result.to_dict`) with the type that its `numbers` method returns.
``python -m congruence.schema docs/schema`` writes them all.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from congruence.result import SCHEMA_VERSION, STATUSES, Finding, Result

PLAIN = {str: "string", bool: "boolean", int: "integer"}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
RESULTS = {  # of every verb
    "Comparison": "congruence.align.comparison",
    "Deconfounding": "congruence.batches.deconfounding",
    "DecoderExamination": "congruence.decoder.examination",
    "MechanismExamination": "congruence.mechanism.examination",
    "LayerComparison": "congruence.align.layer_comparison",
    "FeatureMatch": "congruence.features.feature_match",
    "Translation": "congruence.translation.result",
    "ComponentStability": "congruence.ica.results",
    "Resolution": "congruence.ica.resolution",
    "Evaluation": "congruence.metrics.evaluation",
    "MixtureExamination": "congruence.mixture.examination",
    "RecipeResult": "congruence.experiments.recipes.result",
}


def result_schema(result: type[Result]) -> dict[str, Any]:
    """Return the JSON schema of what ``to_json`` of a result writes."""
    numbers = get_type_hints(result.numbers).get("return", dict[str, Any])
    definitions: dict[str, Any] = {"Finding": _finding()}
    fields = {
        "status": {"enum": list(STATUSES)},
        "verdict": {"type": "string"},
        "findings": {"type": "array", "items": {"$ref": "#/$defs/Finding"}},
        "numbers": type_schema(numbers, definitions),
        "notes": {"type": "array", "items": {"type": "string"}},
        "settings": {"type": "object"},
        "versions": {"type": "object", "additionalProperties": {"type": "string"}},
        "kind": {"const": result.__name__},
        "schema_version": {"const": SCHEMA_VERSION},
    }
    about = {"$schema": DIALECT, "title": result.__name__, "description": _first_line(result)}
    closed = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return about | closed | {"$defs": definitions}


def _finding() -> dict[str, Any]:
    """The schema of a finding; only conclusions of theorems have premises."""
    hints = get_type_hints(Finding)
    fields = {f.name: type_schema(hints[f.name], {}) for f in dataclasses.fields(Finding) if f.name != "premises"}
    fields["basis"] = {"enum": list(get_args(get_args(hints["basis"])[0]))}
    fields["interval"] = {
        "type": ["array", "null"],
        "items": {"type": ["number", "null"]},
        "minItems": 2,
        "maxItems": 2,
    }
    required = list(fields)
    fields["premises"] = {"type": "array", "items": {"$ref": "#/$defs/Finding"}}
    return {
        "type": "object",
        "description": _first_line(Finding),
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }


def type_schema(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a type; typed dicts, and dataclasses written as dicts, become definitions.

    Undefined floats are written as null.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in (Any, object):
        return {}
    if annotation is None or annotation is type(None):
        return {"type": "null"}
    if annotation is float:
        return {"type": ["number", "null"]}
    if annotation in PLAIN:
        return {"type": PLAIN[annotation]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (typing.NotRequired, typing.Required):
        return type_schema(arguments[0], definitions)
    if origin in (Union, types.UnionType):
        return {"anyOf": [type_schema(one, definitions) for one in arguments]}
    if origin is dict or (inspect.isclass(origin) and issubclass(origin, Mapping)):
        return {"type": "object", "additionalProperties": type_schema(arguments[1], definitions)}
    if origin in (list, tuple) or (inspect.isclass(origin) and issubclass(origin, Sequence)):
        return {"type": "array", "items": type_schema(arguments[0], definitions)}
    if typing.is_typeddict(annotation) or dataclasses.is_dataclass(annotation):
        return _typed_dict(annotation, definitions)
    if annotation in (dict, list):
        return {"type": "object" if annotation is dict else "array"}
    raise TypeError(f"no JSON schema for {annotation!r}")


def _typed_dict(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    name = annotation.__name__
    if name not in definitions:
        definitions[name] = {}  # so that a type may contain itself
        every = get_type_hints(annotation, include_extras=True)
        hints = {field: hint for field, hint in every.items() if get_origin(hint) is not ClassVar}
        definitions[name] = {
            "type": "object",
            "description": _first_line(annotation),
            "properties": {field: type_schema(hint, definitions) for field, hint in hints.items()},
            "required": [field for field, hint in hints.items() if get_origin(hint) is not typing.NotRequired],
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def result_types() -> dict[str, type[Result]]:
    """The result classes of all verbs, by name."""
    return {name: getattr(__import__(room, fromlist=[name]), name) for name, room in RESULTS.items()}


def main(folder: str) -> None:
    """Write the schema of every result into a folder."""
    for name, result in result_types().items():
        text = json.dumps(result_schema(result), indent=2, ensure_ascii=False) + "\n"
        (Path(folder) / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
