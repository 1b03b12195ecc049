"""How alerts and incidents are shown, wherever they are: in which language, and with a link to which runbook page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tocsin_detectors.alerts import Alert, Incident, alert_to_json, incident_to_json
from tocsin_detectors.rules import shipped_rules
from tocsin_detectors.texts import Language, localise, localise_incident
from tocsin_service.access.links import Links, Purpose
from tocsin_service.rollouts.evidence import EVIDENCE
from tocsin_service.rollouts.places import any_kept

__all__ = ["PLAIN", "RUNBOOK_BASE", "Presentation"]

RUNBOOK_BASE = "docs/runbooks"  # where the pages lie in the repository


@dataclass(frozen=True, slots=True)
class Presentation:
    """The one place where an alert or incident of the engine becomes the JSON that people and programs get.

    Attributes:
        lang: language of titles, meanings and remedies, and of the arithmetic in words.
        runbook_base: where the runbook pages are: a path, or an http(s) address that makes them links.
        links: makes links to the service; None: it has no address for people.
        pictures: whether messages show the curves of an incident, through a signed link.
        rollouts: where it is kept what models wrote (the setting ``rollout_dir``); None: nowhere.
    """

    lang: Language = "en"
    runbook_base: str = RUNBOOK_BASE
    links: Links | None = None
    pictures: bool = False
    rollouts: Path | None = None

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

    def view(self, incident: Incident) -> str | None:
        """A link to the incident in the dashboard; None where there is none."""
        return None if self.links is None else self.links.view(incident.run, incident.id)

    def samples(self, incident: Incident, alerts: Iterable[Alert]) -> str | None:
        """A link to what the model wrote there; None if texts say nothing of such ``alerts``, or none are kept.

        It doesn't open what it leads to: rollouts are for those who may read, not for whoever reads a message.
        """
        if self.links is None or self.rollouts is None or not any(one.family in EVIDENCE for one in alerts):
            return None
        if not any_kept(self.rollouts, incident.run):
            return None
        return self.links.view(incident.run, incident.id, samples=True)


PLAIN = Presentation()
