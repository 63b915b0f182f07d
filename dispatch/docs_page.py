"""The interface's description as one page that needs nothing from elsewhere: no scripts, no CDN.

PURE.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, cast

Schema = Mapping[str, Any]

STYLE = """
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem
auto;padding:0 1rem}code,pre{font:.9em ui-monospace,monospace}pre{background:#8881;padding:.6rem;
overflow:auto;border-radius:.4rem}summary{cursor:pointer;padding:.4rem 0}summary b{display:inline-
block;min-width:4.5rem}details{border-bottom:1px solid #8884}table{border-collapse:collapse;width:
100%}td,th{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0}h2{margin-top:2rem}
"""


def docs_html(document: Schema) -> str:
    """The page for an OpenAPI document."""
    info = document["info"]
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(info['title'])}</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(info['title'])}</h1>{_paragraphs(info.get('description', ''))}",
            '<p>For programs: <a href="/openapi.json">openapi.json</a>.</p>',
            *_sections(document),
            "</body></html>",
        )
    )


def _sections(document: Schema) -> Iterator[str]:
    for tag in cast("list[dict[str, str]]", document.get("tags", [])):
        yield f"<h2>{escape(tag['name'])}</h2>{_paragraphs(tag.get('description', ''))}"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation.get("tags", ()):
                    yield _operation(document, path, method, operation)


def _operation(document: Schema, path: str, method: str, operation: Schema) -> str:
    return "".join(
        (
            f"<details><summary><b>{escape(method.upper())}</b> <code>{escape(path)}</code> ",
            f"{escape(operation.get('summary', ''))}</summary>",
            _paragraphs(operation.get("description", "")),
            _parameters(operation.get("parameters", [])),
            _body(document, operation.get("requestBody")),
            _answers(operation["responses"]),
            "</details>",
        )
    )


def _parameters(parameters: Iterable[Schema]) -> str:
    rows = [
        (f"<code>{escape(one['name'])}</code>", one["in"], escape(one.get("description", "")))
        for one in parameters
    ]
    return _table(("parameter", "in", ""), rows)


def _body(document: Schema, body: Schema | None) -> str:
    if body is None:
        return ""
    parts: list[str] = []
    for media_type, content in body["content"].items():
        parts.append(f"<p>Body: <code>{escape(media_type)}</code></p>")
        schema = _resolve(document, content["schema"])
        rows = [
            (
                f"<code>{escape(name)}</code>",
                escape(_type_of(document, field)),
                escape(field.get("description", "")),
            )
            for name, field in schema.get("properties", {}).items()
        ]
        parts.append(_table(("field", "type", ""), rows))
        for example in schema.get("examples", ()):
            parts.append(f"<pre>{escape(json.dumps(example, indent=1))}</pre>")
    return "".join(parts)


def _answers(answers: Mapping[str, Schema]) -> str:
    rows: list[tuple[str, str, str]] = []
    for status, answer in answers.items():
        kinds = ", ".join(
            f"<code>{escape(name)}</code>"
            for content in answer.get("content", {}).values()
            for name in content.get("examples", {})
        )
        rows.append((escape(str(status)), escape(answer["description"]), kinds))
    return _table(("answer", "", "problem types"), rows)


def _resolve(document: Schema, schema: Schema) -> Schema:
    """The schema behind a reference, or behind the one alternative that is not null."""
    for one in schema.get("anyOf", ()):
        if one.get("type") != "null":
            return _resolve(document, one)
    name = schema.get("$ref", "").rpartition("/")[2]
    return document["components"]["schemas"][name] if name else schema


def _type_of(document: Schema, field: Schema) -> str:
    if "$ref" in field:
        inner = _resolve(document, field).get("properties", {})
        return f"object: {', '.join(inner)}"
    alternatives = field.get("anyOf", [field])
    return " or ".join(str(one.get("type", "object")) for one in alternatives)


def _table(heads: tuple[str, str, str], rows: list[tuple[str, str, str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{one}</th>" for one in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in text.strip().split("\n\n") if part)
