"""The configuration tree of ``serve``: one YAML file, every key also from ``ADAPTIVE_GAMMA_*``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from adaptive_gamma.config.values import (
    checked_gamma,
    engine_path,
    engine_url,
    header_name,
    host_port,
    passed_path,
    schedule_file,
    secret_token,
    settable_gamma,
)

__all__ = [
    "AffinitySettings",
    "CapabilitySettings",
    "ClassRule",
    "ClassifySettings",
    "ControlSettings",
    "CostCheckSettings",
    "DecisionSettings",
    "DrainSettings",
    "GammaControlSettings",
    "HealthSettings",
    "LearnSettings",
    "LimitSettings",
    "LoadSettings",
    "ObserveSettings",
    "ReloadSettings",
    "ReplicaSettings",
    "RetrySettings",
    "ScrapeSettings",
    "Settings",
]

_Seconds = Annotated[float, Field(gt=0, le=86_400)]
_ShortSeconds = Annotated[float, Field(gt=0, le=60)]
_Cap = Annotated[int, Field(ge=1, le=1_000_000)]


class _Section(BaseModel):
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


class GammaControlSettings(_Section):
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


class ReplicaSettings(_Section):
    """One engine to route to."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62})$")]
    url: str
    engine: Literal["vllm", "llamacpp", "sglang"] = "vllm"
    gamma: Literal["auto"] | Annotated[int, Field(ge=0, le=64)] | list[tuple[int, int, int]] = "auto"
    """``auto`` asks the engine; 0 is a plain replica; a number or a schedule [[first, last, gamma], ...] otherwise."""
    model: str | None = None
    """Serve only this model name from the replica; null takes the engine's own list."""
    max_in_flight: _Cap | None = None
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

    @field_validator("url")
    @classmethod
    def _absolute(cls, value: str) -> str:
        return engine_url(value)

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


class ClassRule(_Section):
    """Gives requests a class without looking at the prompt. All conditions present must hold."""

    path: str | None = None
    model: str | None = None
    request_class: Annotated[str, Field(alias="class")]


class ClassifySettings(_Section):
    """How a request gets its class: header, then rules, then a bounded look at the prompt."""

    header: str | None = "x-adaptive-gamma-class"
    """Request header a client may name the class in; null trusts no header."""
    rules: list[ClassRule] = []
    default: str = "unsure"

    @field_validator("header")
    @classmethod
    def _header(cls, value: str | None) -> str | None:
        return header_name(value)


class ScrapeSettings(_Section):
    interval_s: _ShortSeconds = 1.0
    timeout_s: _ShortSeconds = 0.5
    stale_after_s: _Seconds = 3.0
    half_life_s: _Seconds = 30.0
    """Half-life of the acceptance window, in seconds of traffic."""


class HealthSettings(_Section):
    path: Annotated[str, AfterValidator(engine_path)] = "/health"
    interval_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    timeout_s: _ShortSeconds = 2.0
    down_after: Annotated[int, Field(ge=1, le=100)] = 3
    up_after: Annotated[int, Field(ge=1, le=100)] = 2
    ramp_s: Annotated[float, Field(ge=0, le=3600)] = 30.0
    """How long a replica that comes back, restarts or joins a running fleet is priced above its load; 0: not at all."""


class LimitSettings(_Section):
    body_bytes: Annotated[int, Field(ge=1, le=2**40)] = 67_108_864
    connect_timeout_s: _ShortSeconds = 5.0
    first_byte_timeout_s: _Seconds = 600.0
    idle_timeout_s: _Seconds = 300.0


class LoadSettings(_Section):
    """What happens when there is more to do than the replicas should take. Off by default: engines queue by themselves.

    A request that could be served, but only by replicas at their cap, waits while the queue has room for it, and is
    answered 503 with Retry-After when it has none or the wait is over.
    """

    max_in_flight: _Cap | None = None
    """Most requests of ours open on one replica at once, for replicas without a number of their own; null: no cap."""
    queue: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Requests that may wait for a place on a replica."""
    queue_timeout_s: _Seconds = 30.0
    """Longest wait for one."""


class AffinitySettings(_Section):
    """The memory of which replica served a session or a long prompt last, whose KV cache may still hold it."""

    entries: Annotated[int, Field(ge=0, le=10_000_000)] = 8192
    """Sessions and prompt blocks remembered, the longest unused forgotten first; 0 switches affinity off."""
    max_age_s: _Seconds = 600.0
    """After this long a cache is no longer believed to hold anything."""


class RetrySettings(_Section):
    attempts: Annotated[int, Field(ge=0, le=10)] = 1
    """Tries on other replicas after the first."""


class DrainSettings(_Section):
    grace_s: Annotated[float, Field(ge=0, le=86_400)] = 120.0


class DecisionSettings(_Section):
    """Limits that filter replicas before their costs are compared, and the length of the decision log."""

    kv_usage_limit: Annotated[float, Field(gt=0, le=1)] = 0.95
    slo_tpot_s: _Seconds | None = None
    keep: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Decisions kept for the admin page ``/decisions``."""


class LearnSettings(_Section):
    """Learning acceptance from traffic: what requests report, or replicas count."""

    enabled: bool = True
    ask: Literal["none", "usage"] = "none"
    """Whether streams are made to report where an engine reports only to those who ask. ``usage`` asks in the client's
    place, on vLLM for the usage chunk, and takes the chunk that this adds out of the client's stream again."""
    state_file: Annotated[str, Field(min_length=1)] | None = None
    """Where what was learned survives a restart; null keeps it in memory only."""
    save_s: Annotated[float, Field(ge=0.1, le=3600)] = 5.0
    """Least time between two writes of the file."""
    half_life_s: _Seconds = 600.0
    """Half-life of what was counted, in seconds of traffic of the class."""
    settle_s: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """After a change of a replica's gamma its acceptance is not believed for this long: it dips after an upshift."""
    rebuild_s: Annotated[float, Field(ge=0.1, le=86_400)] = 10.0
    """Least time between two tables built from what was learned."""
    exclude: list[str] = []
    """Replicas whose acceptance is not learned from, such as those with adaptive verification, which counts what was
    drafted and not verified as rejected."""


class ControlSettings(_Section):
    """When the gamma of a replica with ``set_gamma`` is changed."""

    interval_s: _ShortSeconds = 1.0
    """How often each such replica is looked at."""
    dwell_s: _Seconds = 60.0
    """Shortest time between two changes of one replica, but for those that a capture limit or an SLO forces; also how
    far back its highest load counts."""
    min_gain: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Predicted gain in tokens per second under which gamma stays (0.01 is 1 %); measured noise raises it. Engines
    that count a request when it ends show no noise, so that this is all there is on them."""
    probe_every_s: _Seconds = 300.0
    """Wait before a short draft is tried where nothing is drafted, to see whether acceptance is what it was. Each
    probe that finds nothing, and each raise that is taken back, doubles it, up to an hour."""


class CostCheckSettings(_Section):
    """Predicted against observed step time."""

    flag_above: Annotated[float, Field(gt=0, le=10)] = 0.25
    """Relative error from which a replica is flagged and its predictions are corrected."""
    flag_after_s: _Seconds = 30.0
    """How long the error must last for that, and how long it must be gone for the end of it."""
    largest_correction: Annotated[float, Field(ge=1, le=10)] = 2.0
    """Predictions are multiplied by at most this, and at least by its inverse; 1 corrects nothing."""


class CapabilitySettings(_Section):
    """Requests that a speculative replica serves wrongly or not at all, and those that only one replica can serve."""

    structured_output: Literal["any", "plain"] = "any"
    """Where requests go whose output must follow a grammar or schema: ``plain`` keeps them off replicas that
    speculate, for engines that crash on the two together or let the grammar go."""
    context_margin: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """How near ``drafter_context`` of a replica is too near, as a share of it: prompts are estimated, not counted."""
    stored_responses: Annotated[int, Field(ge=0, le=10_000_000)] = 10_000
    """Responses (of /v1/responses) remembered by the replica that stores them, the longest unused forgotten first;
    0: none, and a request that names one goes anywhere."""


class ObserveSettings(_Section):
    """What is kept of each request while ``mode`` is ``observe``, for the command ``report``."""

    log: Annotated[str, Field(min_length=1)] | None = None
    """File of one JSON object a line; null keeps observations in memory only."""
    max_bytes: Annotated[int, Field(ge=10_000, le=2**40)] = 104_857_600
    """Size at which the file is put aside as ``<log>.1`` and a new one begun."""
    files: Annotated[int, Field(ge=1, le=1000)] = 4
    """Files kept in all, the one being written included."""
    keep: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Observations kept in memory for the admin page ``/observations``, about 1 kB each."""


class ReloadSettings(_Section):
    """Reading configuration and policy again without being told to."""

    watch_s: Annotated[float, Field(ge=0.05, le=3600)] | None = None
    """How often the two files are looked at; one that has changed and then stayed the same for one look is loaded.
    null: only on SIGHUP."""


class Settings(BaseSettings):
    """Everything ``serve`` needs. Wrong keys are refused, not ignored."""

    model_config = SettingsConfigDict(
        env_prefix="ADAPTIVE_GAMMA_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    listen: str = "127.0.0.1:8080"
    admin: str = "127.0.0.1:9090"
    policy: str
    mode: Literal["act", "observe"] = "act"
    replicas: Annotated[list[ReplicaSettings], Field(min_length=1)]
    engine_api_key: SecretStr | None = None
    """Sent to engines as a bearer token in place of the client's Authorization."""
    classify: ClassifySettings = ClassifySettings()
    scrape: ScrapeSettings = ScrapeSettings()
    health: HealthSettings = HealthSettings()
    limits: LimitSettings = LimitSettings()
    load: LoadSettings = LoadSettings()
    affinity: AffinitySettings = AffinitySettings()
    retry: RetrySettings = RetrySettings()
    drain: DrainSettings = DrainSettings()
    decision: DecisionSettings = DecisionSettings()
    learn: LearnSettings = LearnSettings()
    control: ControlSettings = ControlSettings()
    cost_check: CostCheckSettings = CostCheckSettings()
    capability: CapabilitySettings = CapabilitySettings()
    observe: ObserveSettings = ObserveSettings()
    reload: ReloadSettings = ReloadSettings()
    allow_paths: list[Annotated[str, AfterValidator(passed_path)]] = []
    """Further engine paths to pass through (POST and GET), beyond the generation paths."""

    @field_validator("listen", "admin")
    @classmethod
    def _host_port(cls, value: str) -> str:
        return host_port(value)

    @field_validator("engine_api_key")
    @classmethod
    def _key(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else SecretStr(secret_token(value.get_secret_value()))

    @field_validator("load")
    @classmethod
    def _queue_before_a_cap(cls, value: LoadSettings, info: ValidationInfo) -> LoadSettings:
        replicas = info.data.get("replicas", ())
        if value.queue and value.max_in_flight is None and replicas and all(r.max_in_flight is None for r in replicas):
            raise ValueError("queue needs a max_in_flight here or at a replica: without a cap nothing ever waits")
        return value

    @model_validator(mode="after")
    def _distinct(self) -> Settings:
        names = [r.name for r in self.replicas]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two replicas are named {name!r}")
        files = [r.gamma_control.file for r in self.replicas if r.gamma_control is not None and r.gamma_control.file]
        for file in files:
            if files.count(file) > 1:
                raise ValueError(f"two replicas have the schedule file {file}: each engine needs its own")
        if self.listen == self.admin and not self.listen.endswith(":0"):
            raise ValueError("listen and admin must differ")
        return self
