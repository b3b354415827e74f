"""The configuration tree of ``serve``: one YAML file, every key also from ``ADAPTIVE_GAMMA_*``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from adaptive_gamma.config.discovery_settings import (
    DiscoverySettings,
    DnsSettings,
    KubernetesSettings,
    ServiceSettings,
)
from adaptive_gamma.config.replica_settings import GammaControlSettings, ReplicaSettings, ReplicaTemplate
from adaptive_gamma.config.section import Cap, File, NamedFile, Seconds, Section, ShortSeconds
from adaptive_gamma.config.telling_settings import AccessLogSettings, TracingSettings
from adaptive_gamma.config.values import (
    dns_name,
    engine_path,
    header_name,
    host_port,
    is_reached_at,
    passed_path,
    secret_token,
)

__all__ = [
    "AccessLogSettings",
    "AffinitySettings",
    "CapabilitySettings",
    "ClassRule",
    "ClassifySettings",
    "ControlSettings",
    "CostCheckSettings",
    "DecisionSettings",
    "DiscoverySettings",
    "DnsSettings",
    "DrainSettings",
    "GammaControlSettings",
    "HealthSettings",
    "KubernetesSettings",
    "LearnSettings",
    "LimitSettings",
    "LoadSettings",
    "ObserveSettings",
    "ReloadSettings",
    "ReplicaSettings",
    "ReplicaTemplate",
    "RetrySettings",
    "ScrapeSettings",
    "ServiceSettings",
    "Settings",
    "TracingSettings",
]

_NOT_GIVEN: Any = ()


class ClassRule(Section):
    """Gives requests a class without looking at the prompt. All conditions present must hold."""

    path: str | None = None
    """Path of the request; null: any."""
    model: str | None = None
    """Model it asks for; null: any."""
    request_class: Annotated[str, Field(alias="class")]
    """What they get: a class of the policy, or ``code``, ``math`` or ``prose``."""


class ClassifySettings(Section):
    """How a request gets its class: header, then rules, then a bounded look at the prompt."""

    header: str | None = "x-adaptive-gamma-class"
    """Request header a client may name the class in; null trusts no header."""
    rules: list[ClassRule] = Field(default_factory=list)
    """The first that fits decides."""
    default: str = "unsure"
    """Class of requests of which nothing is known."""

    @field_validator("header")
    @classmethod
    def _header(cls, value: str | None) -> str | None:
        return header_name(value)


class ScrapeSettings(Section):
    interval_s: ShortSeconds = 1.0
    """How often the metrics of each replica are read."""
    timeout_s: ShortSeconds = 0.5
    """Longest wait for them."""
    stale_after_s: Seconds = 3.0
    """From this age on a reading is not known any more: load is then what this proxy itself has open."""
    half_life_s: Seconds = 30.0
    """Half-life of the acceptance window, in seconds of traffic."""


class HealthSettings(Section):
    path: Annotated[str, AfterValidator(engine_path)] = "/health"
    """What is asked of an engine; 200 is good."""
    interval_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """How often it is asked."""
    timeout_s: ShortSeconds = 2.0
    """Longest wait for the answer."""
    down_after: Annotated[int, Field(ge=1, le=100)] = 3
    """Bad probes, or failed requests, in a row after which a replica is down."""
    up_after: Annotated[int, Field(ge=1, le=100)] = 2
    """Good probes in a row after which it is up again."""
    ramp_s: Annotated[float, Field(ge=0, le=3600)] = 30.0
    """How long a replica that comes back, restarts or joins a running fleet is priced above its load; 0: not at all."""


class LimitSettings(Section):
    body_bytes: Annotated[int, Field(ge=1, le=2**40)] = 67_108_864
    """Largest body of a request; 413 beyond it."""
    bodies_bytes: Annotated[int, Field(ge=1, le=2**44)] = 1_073_741_824
    """Bodies of requests held at once, all together; one more part of any is answered 503. At least one body fits."""
    connect_timeout_s: ShortSeconds = 5.0
    """Longest wait for a connection to an engine."""
    first_byte_timeout_s: Seconds = 600.0
    """Longest wait for the head of an answer; 504 after it."""
    idle_timeout_s: Seconds = 300.0
    """Longest silence between two reads, of an engine or a client, before the connection is cut."""


class LoadSettings(Section):
    """What happens when there is more to do than the replicas should take. Off by default: engines queue by themselves.

    A request that could be served, but only by replicas at their cap, waits while the queue has room for it, and is
    answered 503 with Retry-After when it has none or the wait is over.
    """

    max_in_flight: Cap | None = None
    """Most requests of ours open on one replica at once, for replicas without a number of their own; null: no cap."""
    queue: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Requests that may wait for a place on a replica."""
    queue_timeout_s: Seconds = 30.0
    """Longest wait for one."""


class AffinitySettings(Section):
    """The memory of which replica served a session or a long prompt last, whose KV cache may still hold it."""

    entries: Annotated[int, Field(ge=0, le=10_000_000)] = 8192
    """Sessions and prompt blocks remembered, the longest unused forgotten first; 0 switches affinity off."""
    max_age_s: Seconds = 600.0
    """After this long a cache is no longer believed to hold anything."""


class RetrySettings(Section):
    attempts: Annotated[int, Field(ge=0, le=10)] = 1
    """Tries on other replicas after the first."""


class DrainSettings(Section):
    grace_s: Annotated[float, Field(ge=0, le=86_400)] = 120.0
    """How long open streams may go on after SIGTERM before they are cut."""


class DecisionSettings(Section):
    """Limits that filter replicas before their costs are compared, and the length of the decision log."""

    kv_usage_limit: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Replicas whose KV cache is fuller than this share are passed over while there are others."""
    slo_tpot_s: Seconds | None = None
    """Time per output token that a replica should be predicted to keep; null: none."""
    keep: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Decisions kept for the admin page ``/decisions``."""


class LearnSettings(Section):
    """Learning acceptance from traffic: what requests report, or replicas count."""

    enabled: bool = True
    """Whether anything is learned."""
    ask: Literal["none", "usage"] = "none"
    """Whether streams are made to report where an engine reports only to those who ask. ``usage`` asks in the client's
    place, on vLLM for the usage chunk, and takes the chunk that this adds out of the client's stream again."""
    state_file: File | None = None
    """Where what was learned survives a restart; null keeps it in memory only. A relative path is one from the folder
    of the configuration file."""
    save_s: Annotated[float, Field(ge=0.1, le=3600)] = 5.0
    """Least time between two writes of the file."""
    half_life_s: Seconds = 600.0
    """Half-life of what was counted, in seconds of traffic of the class."""
    settle_s: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """After a change of a replica's gamma its acceptance is not believed for this long: it dips after an upshift."""
    rebuild_s: Annotated[float, Field(ge=0.1, le=86_400)] = 10.0
    """Least time between two tables built from what was learned."""
    exclude: list[str] = Field(default_factory=list)
    """Replicas whose acceptance is not learned from, such as those with adaptive verification, which counts what was
    drafted and not verified as rejected."""


class ControlSettings(Section):
    """When the gamma of a replica with ``set_gamma`` is changed."""

    interval_s: ShortSeconds = 1.0
    """How often each such replica is looked at."""
    dwell_s: Seconds = 60.0
    """Shortest time between two changes of one replica, but for those that a capture limit or an SLO forces; also how
    far back its highest load counts."""
    min_gain: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Predicted gain in tokens per second under which gamma stays (0.01 is 1 %); measured noise raises it. Engines
    that count a request when it ends show no noise, so that this is all there is on them."""
    probe_every_s: Seconds = 300.0
    """Wait before a short draft is tried where nothing is drafted, to see whether acceptance is what it was. Each
    probe that finds nothing, and each raise that is taken back, doubles it, up to an hour."""


class CostCheckSettings(Section):
    """Predicted against observed step time."""

    flag_above: Annotated[float, Field(gt=0, le=10)] = 0.25
    """Relative error from which a replica is flagged and its predictions are corrected."""
    flag_after_s: Seconds = 30.0
    """How long the error must last for that, and how long it must be gone for the end of it."""
    largest_correction: Annotated[float, Field(ge=1, le=10)] = 2.0
    """Predictions are multiplied by at most this, and at least by its inverse; 1 corrects nothing."""


class CapabilitySettings(Section):
    """Requests that a speculative replica serves wrongly or not at all, and those that only one replica can serve."""

    structured_output: Literal["any", "plain"] = "any"
    """Where requests go whose output must follow a grammar or schema: ``plain`` keeps them off replicas that
    speculate, for engines that crash on the two together or let the grammar go."""
    context_margin: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """How near ``drafter_context`` of a replica is too near, as a share of it: prompts are estimated, not counted."""
    stored_responses: Annotated[int, Field(ge=0, le=10_000_000)] = 10_000
    """Responses (of /v1/responses) remembered by the replica that stores them, the longest unused forgotten first;
    0: none, and a request that names one goes anywhere."""


class ObserveSettings(Section):
    """What is kept of each request while ``mode`` is ``observe``, for the command ``report``."""

    log: File | None = None
    """File of one JSON object a line; null keeps observations in memory only. A relative path is one from the folder of
    the configuration file."""
    max_bytes: Annotated[int, Field(ge=10_000, le=2**40)] = 104_857_600
    """Size at which the file is put aside as ``<log>.1`` and a new one begun."""
    files: Annotated[int, Field(ge=1, le=1000)] = 4
    """Files kept in all, the one being written included."""
    keep: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Observations kept in memory for the admin page ``/observations``, about 1 kB each."""


class ReloadSettings(Section):
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
    """host:port for clients."""
    admin: str = "127.0.0.1:9090"
    """host:port of the admin pages; they have no login."""
    admin_hosts: list[Annotated[str, AfterValidator(dns_name)]] = []
    """Further names under which the admin port may be asked, such as that of an ingress; addresses, names without a dot
    and names inside of a cluster always may."""
    policy: Annotated[str, NamedFile(or_policy=True)]
    """Name of a shipped policy, or a file. A relative path here is one from the folder of the configuration file; in a
    variable or an option, from the working directory."""
    mode: Literal["act", "observe"] = "act"
    """``observe`` decides and records, and sends each request to the least loaded replica."""
    discovery: DiscoverySettings | None = None
    """Where further replicas are found; null: there are only those of ``replicas``."""
    replicas: Annotated[list[ReplicaSettings], Field(validate_default=True)] = _NOT_GIVEN
    """May be empty only beside ``discovery``."""
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
    access_log: AccessLogSettings = AccessLogSettings()
    tracing: TracingSettings = TracingSettings()
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

    @field_validator("replicas", mode="before")
    @classmethod
    def _some(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, list | tuple) and not value and info.data.get("discovery", ...) is None:
            if isinstance(value, tuple):
                raise PydanticCustomError("missing", "Field required")
            raise ValueError("list should have at least 1 item where there is no discovery, not 0")
        return list(value) if isinstance(value, tuple) else value

    @field_validator("load")
    @classmethod
    def _queue_before_a_cap(cls, value: LoadSettings, info: ValidationInfo) -> LoadSettings:
        discovery = info.data.get("discovery")
        found: list[ReplicaTemplate] = [] if discovery is None else discovery.services
        replicas = [*info.data.get("replicas", ()), *found]
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
        for key, address in (("listen", self.listen), ("admin", self.admin)):
            for replica in self.replicas:
                if is_reached_at(address, replica.url):
                    raise ValueError(f"replica {replica.name!r} is this process itself ({key} is {address})")
        return self
