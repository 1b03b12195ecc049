"""The dashboard: what its page needs beyond the rest of the API, and the page itself (:mod:`static <.files>`)."""

__all__ = ["SHELL"]

SHELL = "/dashboard/"
"""Path of the page and its files: what they show they ask the API for, with a token."""
