"""Bodies of answers: types that mypy checks, and that the OpenAPI document shows."""
