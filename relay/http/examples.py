"""Examples of whole bodies, put together from the examples of their fields."""

from typing import Any

Schema = dict[str, Any]


def with_examples(components: dict[str, Schema]) -> dict[str, Schema]:
    """Adds to each schema an example of itself."""
    return {name: {**schema, "examples": [_example(schema, components)]} for name, schema in components.items()}


def _example(schema: Schema, components: dict[str, Schema]) -> Any:
    match schema:
        case {"examples": [first, *_]}:
            return first
        case {"$ref": reference}:
            return _example(components[reference.rpartition("/")[2]], components)
        case {"type": "array", "items": items}:
            return [_example(items, components)]
        case {"anyOf": [first, *_]}:
            return _example(first, components)
        case {"properties": properties}:
            return {name: _example(field, components) for name, field in properties.items()}
    raise LookupError(f"a field has no example: {schema}")
