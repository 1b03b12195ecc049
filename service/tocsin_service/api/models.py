"""The shapes of the answers, for the OpenAPI description. Routes build plain mappings; the tests hold both together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

__all__ = [
    "ActList",
    "AlertList",
    "AppendedModel",
    "ChangeModel",
    "ChartList",
    "ErrorModel",
    "Health",
    "IncidentDetail",
    "IncidentList",
    "MeasuredModel",
    "Overview",
    "Responses",
    "RuleList",
    "RuleModel",
    "RunList",
    "RunModel",
    "SeriesList",
    "SilenceList",
    "SilenceModel",
    "as_json",
    "errors",
]

Responses = dict[int | str, dict[str, Any]]
Number = float | Literal["NaN", "Infinity", "-Infinity"]
SeverityName = Literal["info", "warning", "critical"]
StateName = Literal["firing", "resolved"]
Runbook = Annotated[
    str | None, Field(description="Page that explains the rule, below the setting runbook_base; null for own rules.")
]


class ErrorModel(BaseModel):
    error: Annotated[str, Field(description="What is wrong, and what to do.")]
    problems: Annotated[
        list[dict[str, str | int]] | None,
        Field(description="What is wrong where: index of the vector or line, field, problem. At most 20."),
    ] = None


class AppendedModel(BaseModel):
    accepted: Annotated[int, Field(ge=0, description="Vectors that are new in the log.")]
    repeated: Annotated[int, Field(ge=0, description="Vectors that were in the log already.")]


class FindingModel(BaseModel):
    kind: Annotated[str, Field(description="A word for programs.")]
    text: Annotated[str, Field(description="A sentence for people.")]
    data: dict[str, Any]


class MeasuredModel(AppendedModel):
    metrics: Annotated[dict[str, Number], Field(description="What was stored, by canonical name.")]
    findings: list[FindingModel]
    warnings: Annotated[list[str], Field(description="What makes the numbers less than they could be.")]


class RunModel(BaseModel):
    run: str
    step: int | None
    attempt: int | None
    created: float
    last_seen: Annotated[float | None, Field(description="Unix time at which the latest vector came in.")]
    vectors: int
    pending: Annotated[int, Field(description="Log entries that the rules have not seen yet.")]
    firing: Annotated[dict[SeverityName, int], Field(description="Firing alerts by severity.")]
    config: dict[str, Any]
    error: str | None


class RunList(BaseModel):
    runs: list[RunModel]


class Series(BaseModel):
    metric: str
    steps: list[int]
    values: list[Number]


class SeriesList(BaseModel):
    run: str
    series: list[Series]


class EvidenceModel(BaseModel):
    value: Number
    baseline: Number | None
    score: Number | None
    limit: Number | None
    window: int | None
    detail: Annotated[str, Field(description="The arithmetic in words.")]


class AcknowledgedModel(BaseModel):
    author: str
    comment: str
    time: Annotated[float, Field(description="Unix time.")]


class SilencedModel(BaseModel):
    id: Annotated[str, Field(description="Of the silence.")]
    ends: Annotated[float, Field(description="Unix time.")]


Acknowledged = Annotated[AcknowledgedModel | None, Field(description="Who looks after the incident; null: nobody.")]
Silenced = Annotated[
    SilencedModel | None, Field(description="While it fires, the silence that lasts longest of those about it.")
]


class AlertModel(BaseModel):
    id: str
    run: str
    attempt: int
    rule: str
    family: str
    severity: SeverityName
    metric: str
    source: str
    onset_step: int
    fired_step: int
    evidence: EvidenceModel
    summary: str
    meaning: str
    remedies: list[str]
    state: StateName
    incident: str
    resolved_step: int | None
    reason: str | None
    runbook: Runbook
    acknowledged: Acknowledged
    silenced: Silenced
    samples: Annotated[str | None, Field(description="Path of what the model wrote then; only where it is kept.")] = (
        None
    )


class AlertList(BaseModel):
    alerts: list[AlertModel]


class IncidentModel(BaseModel):
    id: str
    run: str
    attempt: int
    rule: str
    title: str
    severity: SeverityName
    onset_step: int
    first_sign: str
    last_good_step: int | None
    members: list[str]
    meaning: str
    remedies: list[str]
    state: StateName
    opened_step: int
    resolved_step: int | None
    runbook: Runbook
    acknowledged: Acknowledged
    silenced: Silenced


class IncidentList(BaseModel):
    incidents: list[IncidentModel]


class IncidentDetail(IncidentModel):
    alerts: Annotated[list[AlertModel], Field(description="Its members, in order of onset.")]


class MatchersModel(BaseModel):
    run: Annotated[str, Field(description="Pattern of run ids, as in a shell.")]
    rule: Annotated[str, Field(description="Pattern of rule names.")]
    severity: Annotated[SeverityName | None, Field(description="This one alone; null: any.")]
    labels: Annotated[dict[str, str], Field(description="Name of a run's label to the pattern of its value.")]


class SilenceModel(BaseModel):
    id: str
    state: Literal["pending", "active", "expired"]
    matchers: Annotated[MatchersModel, Field(description="All of it has to match.")]
    starts: float
    ends: float
    author: str
    comment: str


class SilenceList(BaseModel):
    silences: list[SilenceModel]


class ActModel(BaseModel):
    time: float
    actor: Annotated[str, Field(description="Name of the token; `link`: a signed link; `local`: none was asked for.")]
    action: str
    subject: Annotated[str, Field(description="What it was done to: id of a silence, a run, or an incident.")]
    detail: Annotated[dict[str, Any], Field(description="What was given.")]


class ActList(BaseModel):
    acts: list[ActModel]


class RuleModel(BaseModel):
    name: str
    family: str
    family_title: str
    title: str
    severity: Annotated[SeverityName, Field(description="Of an alert when it begins to fire.")]
    metrics: Annotated[list[str], Field(description="Canonical names; a {placeholder} matches any text.")]
    tests: Annotated[list[str], Field(description="In English; any of them makes a sign.")]
    signs: Annotated[int, Field(description="So many signs among so many values make an alert.")]
    among: int
    recovery: Annotated[int, Field(description="Clear values in a row that resolve it.")]
    meaning: str
    remedies: list[str]
    source: Annotated[str, Field(description="Where the rule comes from.")]
    runbook: Runbook


class RuleList(BaseModel):
    rules: list[RuleModel]


class WorstModel(BaseModel):
    incident: Annotated[str, Field(description="Its id.")]
    severity: SeverityName
    title: str
    onset_step: int
    acknowledged: bool


class LookModel(BaseModel):
    run: str
    state: Annotated[
        Literal["running", "silent", "finished"], Field(description="Silent: longer than its pace allows.")
    ]
    step: int | None
    attempt: int | None
    created: float
    last_seen: float | None
    interval: Annotated[float | None, Field(description="Usual seconds between two steps.")]
    vectors: int
    firing: dict[SeverityName, int]
    worst: Annotated[WorstModel | None, Field(description="The most severe open incident.")]
    metric: Annotated[str | None, Field(description="Canonical name of the metric of the small curve.")]
    values: Annotated[list[Number], Field(description="Its latest values, at most 60.")]
    algorithm: str | None
    framework: str | None
    labels: dict[str, str]
    error: str | None


class Overview(BaseModel):
    runs: list[LookModel]
    total: Annotated[int, Field(description="Runs in the store.")]


class PartModel(BaseModel):
    attempt: int
    steps: Annotated[list[int], Field(description="Ascending.")]
    values: Annotated[list[Number], Field(description="In the canonical unit.")]


class ChartModel(BaseModel):
    metric: Annotated[str, Field(description="Canonical name.")]
    source: Annotated[str, Field(description="The trainer's name for it.")]
    unit: str
    healthy: Annotated[str, Field(description="The shape it has in a healthy run.")]
    parts: Annotated[list[PartModel], Field(description="One for each attempt.")]


class FamilyModel(BaseModel):
    family: str
    title: str
    metrics: list[ChartModel]


class ChartList(BaseModel):
    run: str
    attempt: Annotated[int, Field(description="Of the latest vector.")]
    position: Annotated[int, Field(description="Of the last entry of the log that was read, for `behind`.")]
    complete: Annotated[bool, Field(description="False: the log is so long that only its end was read.")]
    families: list[FamilyModel]


class ChangeModel(BaseModel):
    vectors: Annotated[int, Field(description="Vectors in the log, or in all logs.")]
    attempt: int | None
    said: Annotated[str, Field(description="Digest of alerts, what people did about them, and configuration.")]


class Health(BaseModel):
    status: str
    warning: Annotated[str | None, Field(description="What keeps stored vectors from being judged.")] = None


_MEANINGS = {
    400: "The body can't be read: broken gzip, or it ended too early.",
    401: "A token is needed.",
    403: "The token lacks the scope, or the request comes from another web site.",
    404: "No such run, incident or silence.",
    408: "The body came in too slowly.",
    411: "The Content-Length is missing.",
    413: "The body is too large; send less at a time.",
    415: "The Content-Encoding is not known.",
    421: "The service has no token and was called by a name that isn't this machine's.",
    422: "Something in the request is malformed; nothing was stored.",
    429: "Too many requests, or there are as many runs or silences as may be. See Retry-After.",
    501: "The service lacks what it needs for that; the text says how to install it.",
    503: "The store can't be used now; nothing was stored. See Retry-After.",
}


def errors(*statuses: int) -> Responses:
    """The error answers of a route: the given ones and those that every route has."""
    return {
        status: {"model": ErrorModel, "description": _MEANINGS[status]}
        for status in sorted({401, 403, 421, 429, *statuses})
    }


def as_json(responses: Responses) -> Responses:
    """Error answers of a route whose answer, if all is well, is no JSON."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorModel.__name__}"}}}
    return {status: {"description": told["description"], "content": content} for status, told in responses.items()}
