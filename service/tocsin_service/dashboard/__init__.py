"""The dashboard: what its page needs beyond the rest of the API, and the page itself (:mod:`static <.files>`)."""
