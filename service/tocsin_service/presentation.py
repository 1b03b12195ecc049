"""How alerts and incidents are shown, wherever they are: in which language, and with a link to which runbook page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tocsin_detectors.alerts import Alert, Incident, alert_to_json, incident_to_json
from tocsin_detectors.rules import shipped_rules
from tocsin_detectors.texts import Language, localise, localise_incident
from tocsin_service.access.links import Links, Purpose

__all__ = ["PLAIN", "RUNBOOK_BASE", "Presentation"]

RUNBOOK_BASE = "docs/runbooks"  # where the pages lie in the repository


@dataclass(frozen=True, slots=True)
class Presentation:
    """The one place where an alert or incident of the engine becomes the JSON that people and programs get.

    Attributes:
        lang: language of titles, meanings and remedies, and of the arithmetic in words.
        runbook_base: where the runbook pages are: a path, or an http(s) address that makes them links.
        links: makes signed links to the service; None: it has no address for people.
        pictures: whether messages show the curves of an incident, through such a link.
    """

    lang: Language = "en"
    runbook_base: str = RUNBOOK_BASE
    links: Links | None = None
    pictures: bool = False

    def alert(self, alert: Alert) -> dict[str, Any]:
        """The alert as strict JSON, with its ``runbook``."""
        return {**localise(alert_to_json(alert), self.lang), "runbook": self.runbook(alert.rule)}

    def incident(self, incident: Incident) -> dict[str, Any]:
        """The incident as strict JSON, with its ``runbook``."""
        return {**localise_incident(incident_to_json(incident), self.lang), "runbook": self.runbook(incident.rule)}

    def runbook(self, rule: str) -> str | None:
        """Where the page of a rule is; None for rules of a rule file, which have none."""
        return f"{self.runbook_base.rstrip('/')}/{rule}.md" if rule in shipped_rules() else None

    def link(self, purpose: Purpose, incident: Incident) -> str | None:
        """A signed link to the incident's page or picture; None where there is none."""
        if self.links is None or (purpose == "picture" and not self.pictures):
            return None
        return self.links.make(purpose, incident.run, incident.id)


PLAIN = Presentation()
