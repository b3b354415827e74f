"""What the sections of the configuration have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

__all__ = ["Cap", "File", "NamedFile", "Seconds", "Section", "ShortSeconds"]

Seconds = Annotated[float, Field(gt=0, le=86_400)]
ShortSeconds = Annotated[float, Field(gt=0, le=60)]
Cap = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class NamedFile:
    """Marks text that names a file; a relative path in a configuration is one from that configuration's folder."""

    no_files: tuple[str, ...] = ()
    """What stands for something else."""
    or_policy: bool = False
    """Whether it may be the name of a shipped policy."""


File = Annotated[str, Field(min_length=1), NamedFile()]


class Section(BaseModel):
    """A part of the tree; wrong keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switches(cls, value: Any, info: ValidationInfo) -> Any:
        """Few keys are switches; elsewhere True would pass for the number 1."""
        if isinstance(value, bool) and info.field_name not in ("gamma", "enabled"):
            if (info.field_name or "").endswith("_s"):
                raise ValueError("expected a number of seconds")
            raise ValueError("expected no true or false (YAML reads a bare yes, no, on, off as such; quote it)")
        return value
