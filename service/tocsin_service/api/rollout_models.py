"""The shapes of answers about rollouts, for the OpenAPI description."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from tocsin_service.api.models import AppendedModel, Number

__all__ = ["DiffModel", "KeptModel", "RowList", "SamplesModel", "StepList"]


class KeptModel(AppendedModel):
    rows: Annotated[int, Field(ge=1, description="Rollouts in the request.")]
    kept: Annotated[int, Field(ge=0, description="Of these, how many are on disk: the sampling policy's choice.")]
    metrics: Annotated[dict[str, Number], Field(description="What joined the step, by canonical name.")]
    warnings: Annotated[list[str], Field(description="What was changed so that it could be stored.")]


class RowModel(BaseModel):
    step: int
    attempt: int | None
    time: float
    row: Annotated[int, Field(description="Place in the request that brought it.")]
    prompt: str | None
    response: str
    reward: Annotated[Number | None, Field(description="Final, after penalties.")]
    scores: Annotated[dict[str, Number | None] | None, Field(description="Of each reward model or rule.")]
    advantage: Number | None
    group: str | None
    domain: str | None
    length: Annotated[int | None, Field(description="Tokens of the response.")]
    finish_reason: str | None
    ground_truth: str | None
    index: int | None
    chars: Annotated[int, Field(description="Characters of the response as it was sent.")]
    repetition: Annotated[float, Field(description="Share of the response that repeats itself.")]


class RowList(BaseModel):
    run: str
    rows: list[RowModel]


class StepModel(BaseModel):
    step: int
    rows: int


class StepList(BaseModel):
    run: str
    steps: list[StepModel]


class SummaryModel(BaseModel):
    step: int
    rows: int
    reward_mean: Number | None
    reward_min: Number | None
    reward_max: Number | None
    reward_median: Number | None
    length_mean: Number | None
    chars_mean: Number | None
    repetition_mean: Number | None
    empty_ratio: Number | None
    truncated_ratio: Number | None


class SampledModel(SummaryModel):
    attempt: Annotated[int, Field(description="Of the run, counted from 0, as alerts have it.")]


class PromptModel(BaseModel):
    prompt: str
    before_rows: int
    before_reward: Number | None
    before_chars: float
    after_rows: int
    after_reward: Number | None
    after_chars: float


class DiffModel(BaseModel):
    run: str
    before: SummaryModel
    after: SummaryModel
    prompts: Annotated[list[PromptModel], Field(description="In both steps; the greatest fall of the reward first.")]


class EvidenceModel(BaseModel):
    kind: Annotated[str, Field(description="Which extreme, in words.")]
    sort: str
    order: str
    onset: list[RowModel]
    healthy: list[RowModel]


class SamplesModel(BaseModel):
    run: str
    alert: str
    attempt: Annotated[int, Field(description="The alert's.")]
    onset: Annotated[SampledModel | None, Field(description="The first kept step from the onset on.")]
    healthy: Annotated[
        SampledModel | None, Field(description="The last kept step before it, of those that led there over resumes.")
    ]
    evidence: list[EvidenceModel]
