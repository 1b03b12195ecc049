"""Pages of HTML for people: the report of a check, and one incident."""
