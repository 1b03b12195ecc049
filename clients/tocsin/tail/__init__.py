"""Follows the logs that trainers and trackers write, and streams them to a Tocsin server: no change of the trainer.

    python -m tocsin.tail logs/ --url http://tocsin:8765

The same as ``tocsin tail``, for machines that have the client alone. Nothing is lost and nothing doubled, whatever is
killed when: a bookmark tells how far everything was delivered, and a vector that is sent again is known as the same.
"""

from __future__ import annotations

from tocsin.tail._command import add_arguments, tail

__all__ = ["add_arguments", "tail"]
