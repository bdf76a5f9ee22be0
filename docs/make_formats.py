"""Writes the tables of keys in docs/formats.md and docs/results.md from docs/schemas/*.schema.json.

Run it after a schema has changed: `python3 docs/make_formats.py`. A table stands between
`<!-- keys of NAME -->` and `<!-- end of keys -->`; `above KEY` or `under KEY` after NAME picks a part
of the schema. All other text is written by hand.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PAGES = {"formats.md": True, "results.md": False, "accuracy.md": True}  # whether ranges and defaults are of interest
BLOCK = re.compile(
    r"(<!-- keys of (\w+)(?: (above|under) (\S+))? -->\n).*?(<!-- end of keys -->)", re.DOTALL
)
NUMBERS = ("integer", "number")
WORDS = {"integer": "whole number", "string": "text", "boolean": "true or false"}
Schema = dict[str, Any]


@dataclass(frozen=True)
class Key:
    path: str  # such as measured[].steps; * stands for names that the user chooses
    schema: Schema
    required: bool

    @property
    def unit(self) -> str:
        """What a description starts with in brackets: `[s] Median step.`"""
        for schema in (self.schema, innermost(self.schema)):
            if found := re.match(r"\[(.+?)\] ", schema.get("description", "")):
                return found[1]
        return ""

    @property
    def meaning(self) -> str:
        return re.sub(r"^\[.+?\] ", "", self.schema.get("description", ""))


def load(name: str) -> Schema:
    return json.loads((DOCS / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))


def innermost(schema: Schema) -> Schema:
    return innermost(schema["items"]) if "items" in schema else schema


def resolved(schema: Schema, root: Schema) -> Schema:
    """`schema` with what it refers to; keywords beside `$ref` win."""
    if "$ref" not in schema:
        return schema
    target: Any = root
    for step in schema["$ref"].removeprefix("#/").split("/"):
        target = target[step]
    return {**resolved(target, root), **{k: v for k, v in schema.items() if k != "$ref"}}


def merged(one: Schema, other: Schema) -> Schema:
    """The same key in two alternatives: equal, or the name of the alternative."""
    if one == other or "const" not in one and "enum" not in one:
        return one
    words = one.get("enum", [one.get("const")]) + [other["const"]]
    return {"enum": words, "description": f"{one['description']} {other['description']}"}


def alternatives(schema: Schema, root: Schema) -> list[Schema]:
    choices = schema.get("oneOf") or schema.get("anyOf") or [schema]
    return [resolved(choice, root) for choice in choices]


def keys(schema: Schema, root: Schema | None = None, path: str = "") -> Iterator[Key]:
    """Every key of a document, in the order of the schema."""
    root = root or schema
    schema = resolved(schema, root)
    if "items" in schema:
        yield from keys(schema["items"], root, f"{path}[]")
        return
    members: dict[str, Key] = {}
    for choice in alternatives(schema, root):
        for name, member in choice.get("properties", {}).items():
            member = resolved(member, root)
            if name in members:
                member = merged(members[name].schema, member)
            is_required = name in choice.get("required", [])
            members[name] = Key(f"{path}.{name}".lstrip("."), member, is_required)
        if isinstance(any_other := choice.get("additionalProperties"), dict):
            members["*"] = Key(f"{path}.*".lstrip("."), any_other, False)
    for key in members.values():
        yield key
        yield from keys(key.schema, root, key.path)


def number_text(value: float) -> str:
    if isinstance(value, int) and value >= 1 << 20 and value.bit_count() == 1:
        return f"2^{value.bit_length() - 1}"
    return f"{value:g}".replace("e+", "e") if isinstance(value, float) else str(value)


def values_text(schema: Schema, ranges: bool) -> str:
    """What may stand there, in words."""
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        texts = [values_text(choice, ranges) for choice in choices if "$ref" not in choice]
        return " or ".join(texts if len(texts) == len(choices) else ["object", *texts])
    if "const" in schema or "enum" in schema:
        words = schema.get("enum", [schema.get("const")])
        return ", ".join("null" if word is None else f"`{word}`" for word in words)
    types = schema.get("type", "any value")
    if isinstance(types, list):
        return " or ".join(values_text({**schema, "type": one}, ranges) for one in types)
    if types == "array":
        least, most = schema.get("minItems"), schema.get("maxItems")
        text = f"list of {least}" if least and least == most else "list"
        if ranges and least and least != most:
            text += f", at least {least}"
        inner = schema.get("items", {})
        if inner.get("type") == "array":
            return f"{text} of {values_text(inner, ranges).replace('list', 'lists', 1)}"
        return f"{text}: {values_text(inner, ranges)}" if inner.get("type") in NUMBERS else text
    text = WORDS.get(types, types)
    if ranges and types in NUMBERS:
        if "maximum" in schema:
            text += f", {number_text(schema['minimum'])} to {number_text(schema['maximum'])}"
        elif "minimum" in schema:
            text += f", at least {number_text(schema['minimum'])}"
    return text


def table(name: str, relation: str | None, prefix: str | None, ranges: bool) -> str:
    heads = ["key", "unit", "value", *(["default"] if ranges else []), "meaning"]
    lines = [heads, ["---"] * len(heads)]
    for key in keys(load(name)):
        is_under = prefix is not None and key.path.startswith(f"{prefix}.")
        if (relation == "under" and not is_under) or (relation == "above" and is_under):
            continue
        path = key.path.removeprefix(f"{prefix}.") if relation == "under" else key.path
        cells = [f"`{path}`", key.unit, values_text(key.schema, ranges)]
        if ranges:
            default = f"`{json.dumps(key.schema['default'])}`" if "default" in key.schema else "–"
            cells.append("required" if key.required else default)
        lines.append([*cells, key.meaning])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def with_tables(text: str, ranges: bool) -> str:
    def fill(block: re.Match[str]) -> str:
        return f"{block[1]}{table(block[2], block[3], block[4], ranges)}{block[5]}"

    return BLOCK.sub(fill, text)


def main() -> None:
    for page, ranges in PAGES.items():
        path = DOCS / page
        path.write_text(with_tables(path.read_text(encoding="utf-8"), ranges), encoding="utf-8")


if __name__ == "__main__":
    main()
