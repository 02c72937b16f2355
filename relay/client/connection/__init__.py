"""The connection: links to instances, credentials, frames and calls."""
