"""One replica as the configuration gives it, or as discovery makes it from what the configuration gives a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator

from adaptive_gamma.config.section import Cap, Section
from adaptive_gamma.config.values import checked_gamma, engine_url, schedule_file, secret_token, settable_gamma
from adaptive_gamma.engines import DIALECTS

__all__ = ["GammaControlSettings", "ReplicaSettings", "ReplicaTemplate"]


if TYPE_CHECKING:
    EngineName: TypeAlias = str
else:
    EngineName = Literal[tuple(DIALECTS)]
"""An engine that there is a dialect of."""


class GammaControlSettings(Section):
    """The way to the plugin inside of a vLLM whose schedule is set; one of the two."""

    token: SecretStr | None = None
    """Of the plugin's route on the replica's own port."""
    file: Annotated[str, AfterValidator(schedule_file)] | None = None
    """The schedule file that the plugin watches, on a volume that both can reach."""

    @field_validator("token")
    @classmethod
    def _token(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else SecretStr(secret_token(value.get_secret_value()))

    @model_validator(mode="after")
    def _one_way(self) -> GammaControlSettings:
        if (self.token is None) == (self.file is None):
            raise ValueError("expected either token (of the plugin's route) or file (that the plugin watches)")
        return self


class ReplicaTemplate(Section):
    """What may be alike in several replicas."""

    engine: EngineName = "vllm"
    """Which names its metrics page has."""
    gamma: Literal["auto"] | Annotated[int, Field(ge=0, le=64)] | list[tuple[int, int, int]] = "auto"
    """``auto`` asks the engine; 0 is a plain replica; a number or a schedule [[first, last, gamma], ...] otherwise."""
    model: str | None = None
    """Serve only this model name from the replica; null takes the engine's own list."""
    max_in_flight: Cap | None = None
    """Most requests of ours open on the replica at once; null takes ``load.max_in_flight``."""
    drafter: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62})$")] | None = None
    """Family of its drafter; acceptance is learned for each family apart. null: that of the policy."""
    set_gamma: Literal["none", "per_request", "vllm_schedule"] = "none"
    """How this replica's gamma may be set while it runs: ``none`` routes only; ``per_request`` sends it with each
    request (llama.cpp builds that honour "speculative.n_max"); ``vllm_schedule`` sets a gamma for each load through
    the plugin inside of vLLM."""
    gamma_control: Annotated[GammaControlSettings | None, Field(validate_default=True)] = None
    """The way to that plugin; kept, and of no effect, while ``set_gamma`` is none."""

    drafter_context: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Tokens (prompt and output) up to which its drafter works; requests near that go elsewhere while it speculates.
    null: not known, and no request is kept away."""

    @field_validator("gamma", mode="before")
    @classmethod
    def _gamma(cls, value: Any) -> Any:
        return checked_gamma(value)

    @field_validator("set_gamma")
    @classmethod
    def _settable(cls, value: str, info: ValidationInfo) -> str:
        return settable_gamma(value, info.data.get("engine"), info.data.get("gamma"))

    @field_validator("gamma_control")
    @classmethod
    def _way_in(cls, value: GammaControlSettings | None, info: ValidationInfo) -> GammaControlSettings | None:
        way = info.data.get("set_gamma")
        if value is None and way == "vllm_schedule":
            raise ValueError("vllm_schedule needs a section with token (of the plugin's route) or file")
        if value is not None and way == "per_request":
            raise ValueError("per_request sends gamma with each request; expected null")
        return value


class _Place(Section):
    """What no two replicas have in common."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62})$")]
    """In headers, metrics and pages: letters, digits, ``.``, ``_`` and ``-``, at most 63."""
    url: str
    """Where the engine listens: scheme, host and port."""

    @field_validator("url")
    @classmethod
    def _absolute(cls, value: str) -> str:
        return engine_url(value)


class ReplicaSettings(ReplicaTemplate, _Place):
    """One engine to route to."""
