"""Taps for training frameworks and trackers: one file each, nothing imported until it is used.

What a host logs goes to the run under the host's own names; an error in here never reaches the host. A host that is
missing or too old is told by :class:`DidNotEnable`, raised only by what the user calls to switch an integration on.
"""

from __future__ import annotations

from tocsin.integrations._host import DidNotEnable

__all__ = ["DidNotEnable"]
