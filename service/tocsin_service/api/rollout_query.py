"""The queries of requests about rollouts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from tocsin_service.api.errors import ApiError, shorten
from tocsin_service.receiving.vectors import EARLIEST, LARGEST_INTEGER, LATEST

__all__ = ["PostQuery", "RowsQuery", "StepNumber", "TextLength", "bounded", "refuse_unknown"]

LARGEST_ANSWER = 8 * 2**20  # characters of one text of all rows
StepNumber = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
TextLength = Annotated[
    int, Field(ge=0, le=2**20, description="Most characters of each text; less if many rows are asked for.")
]
Name = Annotated[str, Field(min_length=1, max_length=256)]
SortName = Literal["row", "reward", "advantage", "length", "chars", "repetition"]


class PostQuery(BaseModel):
    """What stands beside the rows that are sent."""

    step: Annotated[StepNumber, Field(description="The trainer's step.")]
    attempt: Annotated[StepNumber | None, Field(description="The trainer's restart counter.")] = None
    time: Annotated[
        float | None, Field(ge=EARLIEST, lt=LATEST, description="Unix time of the step in seconds; without it, now.")
    ] = None
    sequence: Annotated[
        str | None,
        Field(min_length=1, max_length=100, pattern="^[ -~]+$", description="The same for every repetition."),
    ] = None
    response_limit: Annotated[
        int | None, Field(ge=1, le=LARGEST_INTEGER, description="The longest possible response in tokens.")
    ] = None
    measure: Annotated[bool, Field(description="false: the rows are kept, and no metrics are made of them.")] = True


class RowsQuery(BaseModel):
    """Which rows, in which order."""

    step: Annotated[StepNumber | None, Field(description="One step.")] = None
    first: Annotated[StepNumber | None, Field(description="Least step of a range.")] = None
    last: Annotated[StepNumber | None, Field(description="Greatest step of a range.")] = None
    attempt: Annotated[StepNumber | None, Field(description="Rows of this attempt, and those that name none.")] = None
    group: Name | None = None
    domain: Name | None = None
    finish_reason: Name | None = None
    contains: Annotated[Name | None, Field(description="A text in the response, letter for letter.")] = None
    least_reward: float | None = None
    most_reward: float | None = None
    sort: Annotated[SortName | None, Field(description="Without it: as sent for one step, by reward for a range.")] = (
        None
    )
    order: Annotated[Literal["asc", "desc"], Field(description="Rows without a value come last; NaN is greatest.")] = (
        "asc"
    )
    limit: Annotated[int, Field(ge=1, le=1000)] = 20
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    text: TextLength = 4000

    @property
    def steps(self) -> tuple[int | None, int | None]:
        """The least and the greatest step; None: no bound."""
        if self.step is None:
            return self.first, self.last
        return max(self.step, self.first or 0), self.step if self.last is None else min(self.step, self.last)

    @property
    def shown(self) -> int:
        """Most characters of each text, so that the whole answer stays bounded."""
        return bounded(self.text, self.limit)


def bounded(text: int, rows: int) -> int:
    """Most characters of a text if there are so many rows."""
    return min(text, LARGEST_ANSWER // rows)


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuses parameters that would be ignored: a mistyped one must not look as if it were heeded.

    Raises:
        ApiError: 422 with what is valid.
    """
    valid = list(known)
    for name in names:
        if name not in valid:
            raise ApiError(422, f"there is no parameter {shorten(name)}; send any of: {', '.join(valid)}", "options")
