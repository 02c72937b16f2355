"""Response bodies: types for mypy and for the OpenAPI document."""
