"""The query of a request with tensors: which step they belong to, and what to compute of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from tocsin_service.api.errors import ApiError, shorten
from tocsin_service.receiving.vectors import EARLIEST, LARGEST_INTEGER, LATEST

__all__ = ["TensorQuery"]

Names = list[Annotated[str, Field(min_length=1, max_length=64)]]
Tokens = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
Text = Annotated[str, Field(min_length=1, max_length=256)]


class TensorQuery(BaseModel):
    """What stands beside the tensors. The options have the library's names and defaults; it checks their values."""

    step: Annotated[int, Field(ge=0, le=LARGEST_INTEGER, description="The trainer's step.")]
    time: Annotated[
        float | None, Field(ge=EARLIEST, lt=LATEST, description="Unix time of the step in seconds; without it, now.")
    ] = None
    attempt: Annotated[int | None, Field(ge=0, le=LARGEST_INTEGER, description="The trainer's restart counter.")] = None
    sequence: Annotated[
        str | None,
        Field(min_length=1, max_length=100, pattern="^[ -~]+$", description="The same for every repetition."),
    ] = None
    file: Annotated[
        str | None,
        Field(min_length=1, max_length=255, description="A file in the setting `tensor_dir`, instead of a body."),
    ] = None
    compat: Annotated[Text | None, Field(description="`verl` or `strict`.")] = None
    metrics: Annotated[Names | None, Field(max_length=32, description="Families; without it all that can be.")] = None
    rollout_is: Annotated[Text | None, Field(description="Importance weights: `token` or `sequence`.")] = None
    rollout_is_threshold: Annotated[Text | None, Field(description="`upper` or `lower_upper`.")] = None
    rollout_is_batch_normalize: bool | None = None
    rollout_rs: Annotated[Text | None, Field(description="Rejection: options, separated by commas.")] = None
    rollout_rs_threshold: Annotated[Text | None, Field(description="One, or one for each option.")] = None
    kl_estimators: Annotated[Names | None, Field(max_length=32)] = None
    entropy_aggregation: Text | None = None
    clip_low: float | None = None
    clip_high: float | None = None
    limits: Annotated[list[Tokens] | None, Field(max_length=32, description="Response lengths, ascending.")] = None
    response_limit: Annotated[Tokens | None, Field(description="The longest possible response.")] = None
    prompt_limit: Annotated[Tokens | None, Field(description="The longest possible prompt.")] = None
    advantage_std: Annotated[Text | None, Field(description="`sample` or `population`.")] = None
    success_threshold: float | None = None

    @classmethod
    def refuse_unknown(cls, names: Iterable[str]) -> None:
        """Refuses parameters that would otherwise be ignored: a mistyped option must not look as if it were heeded.

        Raises:
            ApiError: 422 with what is valid.
        """
        for name in names:
            if name not in cls.model_fields:
                known = ", ".join(cls.model_fields)
                raise ApiError(422, f"there is no parameter {shorten(name)}; send any of: {known}", "options")

    def options(self) -> dict[str, Any]:
        """The options that were given; names also as texts separated by commas."""
        given = self.model_dump(exclude={"step", "time", "attempt", "sequence", "file"}, exclude_none=True)
        for name in given.keys() & {"metrics", "kl_estimators"}:
            given[name] = [part.strip() for one in given[name] for part in one.split(",")]
        return given

    def vector(self, metrics: Mapping[str, float]) -> dict[str, Any]:
        """The step vector that carries ``metrics``, as a trainer would post it."""
        vector = self.model_dump(include={"step", "time", "attempt"})
        # A name space of its own: a trainer may number its vectors and its tensors alike.
        sequence = None if self.sequence is None else f"tensors/{self.sequence}"
        return {**vector, "metrics": dict(metrics), "sequence": sequence}
