"""Settings from one YAML file and the environment; the environment wins. All problems are reported at once."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails, from_json
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from adaptive_gamma.config.file_paths import beside
from adaptive_gamma.config.settings import Settings
from adaptive_gamma.errors import ConfigurationError, nearest
from adaptive_gamma.yaml_text import parse_yaml, read_text

__all__ = ["load_settings", "variable_of"]

_PREFIX = "ADAPTIVE_GAMMA_"
_DELIMITER = "__"
_ECHO_LIMIT = 60
_NO_SETTING = re.compile(r"ADAPTIVE_GAMMA_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?|PLUGIN_.*)")
"""What Kubernetes puts into every container beside a Service named adaptive-gamma, and what is meant for the part of
this package that runs inside of vLLM."""
_SECONDS_KINDS = ("float_parsing", "float_type")
_PLAIN = {
    "string_type": "expected text",
    "list_type": "expected a list",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
}


class _FromMapping(Settings):
    """Settings that take exactly what they are given; file and environment have been merged before."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def load_settings(
    path: Path | str | None,
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    policies: Collection[str] = (),
) -> Settings:
    """Read and check the settings.

    Args:
        path: YAML file; None takes everything from the environment. Relative paths in it are ones from its folder.
        environment: ``ADAPTIVE_GAMMA_KEY`` and ``ADAPTIVE_GAMMA_SECTION__KEY``; lists and objects as JSON.
            Default: the process's environment.
        overrides: top-level keys that win over both, such as those of the command line; None values are left out.
        policies: names of policies that are no files; ``policy`` stays as it is where it is one of them.

    Raises:
        ConfigurationError: naming file or variable, key, problem and the nearest right key; one line per problem.
    """
    source = "environment" if path is None else str(path)
    file_values = {} if path is None else beside(Path(path), _read_yaml(Path(path)), Settings, policies)
    origins: dict[tuple[str, ...], str] = {}
    merged = _merge(file_values, _from_environment(os.environ if environment is None else environment, origins))
    merged.update({key: value for key, value in (overrides or {}).items() if value is not None})
    try:
        settings = _FromMapping(**merged)
    except ValidationError as error:
        raise _explain(error, source, merged, origins, file_values) from None
    return settings


def variable_of(key: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The environment variable that gave a dotted key, or the list or section it stands in; None where none did."""
    values = os.environ if environment is None else environment
    variables = {name.upper(): name for name in values}
    parts = key.partition("[")[0].upper().split(".")
    for end in range(len(parts), 0, -1):
        name = _PREFIX + _DELIMITER.join(parts[:end])
        if name in variables:
            return variables[name]
    return None


# -- reading ----------------------------------------------------------------------------------------------------------


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:  # no file of that name, not UTF-8, or no possible name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(str(path), "", f"cannot be read: {reason}") from error
    values = parse_yaml(text, str(path), text_keys=True)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigurationError(str(path), "", "expected keys and values at the top")
    return values


def _from_environment(environment: Mapping[str, str], origins: dict[tuple[str, ...], str]) -> dict[str, Any]:
    """The tree the variables spell; ``origins`` notes which variable gave which key."""
    tree: dict[str, Any] = {}
    # A whole section given as JSON comes before the single keys of that section.
    ours = (name for name in environment if name.upper().startswith(_PREFIX) and not _NO_SETTING.fullmatch(name))
    for variable in sorted(ours, key=len):
        keys = tuple(part.lower() for part in variable[len(_PREFIX) :].split(_DELIMITER))
        origins[keys] = variable
        value: Any = environment[variable]
        if _is_compound(keys):
            try:
                value = from_json(value)
            except ValueError as error:
                raise ConfigurationError(variable, ".".join(keys), f"not valid JSON: {error}") from None
        node = tree
        for key in keys[:-1]:
            below = node.setdefault(key, {})
            if not isinstance(below, dict):
                raise ConfigurationError(variable, ".".join(keys), f"{key} is not a section")
            node = below
        node[keys[-1]] = value
    return tree


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


# -- the model's own keys ---------------------------------------------------------------------------------------------


def _models_in(annotation: Any) -> Iterable[type[BaseModel]]:
    """The models an annotation may hold, through lists, unions and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _annotation_at(location: Iterable[str | int]) -> Any:
    """The annotation of a key, or None when the path leads nowhere."""
    annotation: Any = Settings
    for part in location:
        if isinstance(part, int):
            continue
        model = next(iter(_models_in(annotation)), None)
        annotation = _values_in(annotation) if model is None else _fields(model).get(part)
    return annotation


def _values_in(annotation: Any) -> Any:
    """The annotation of the values of a mapping under any names; None for what is none."""
    return next((get_args(each)[1] for each in _alternatives(annotation) if get_origin(each) is dict), None)


def _is_compound(keys: tuple[str, ...]) -> bool:
    """Whether a variable's value is JSON: sections and lists."""
    annotation = _annotation_at(keys)
    return any(
        get_origin(part) in (list, dict) or (isinstance(part, type) and issubclass(part, BaseModel))
        for part in _alternatives(annotation)
    )


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [each for argument in get_args(annotation) for each in _alternatives(argument)]
    return [annotation]


def _is_secret(location: Iterable[str | int]) -> bool:
    """Whether what stands there may be a secret: also in the place of a section that holds one."""
    found = _annotation_at(location)
    sections = [each for each in _alternatives(found) if isinstance(each, type) and issubclass(each, BaseModel)]
    return any(map(_has_secrets, [found, *(inside for section in sections for inside in _fields(section).values())]))


def _has_secrets(annotation: Any) -> bool:
    return annotation is SecretStr or any(map(_has_secrets, get_args(annotation)))


# -- explaining -------------------------------------------------------------------------------------------------------


def _explain(
    error: ValidationError,
    source: str,
    merged: Mapping[str, Any],
    origins: Mapping[tuple[str, ...], str],
    file_values: Mapping[str, Any],
) -> ConfigurationError:
    by_location: dict[tuple[str | int, ...], list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        by_location.setdefault(_real_location(details["loc"], merged), []).append(details)
    problems = []
    for location, found in by_location.items():
        names = tuple(part for part in location if isinstance(part, str))
        origin = next((origins[names[:end]] for end in range(len(names), 0, -1) if names[:end] in origins), None)
        if origin is None and names and names[0] not in file_values:
            # A section that only variables of its keys have made.
            origin = next((variable for keys, variable in origins.items() if keys[: len(names)] == names), None)
        origin = origin or source
        problem, suggestion = _problem(found, location)
        problems.append(ConfigurationError(origin, _dotted(location), problem, suggestion))
    return ConfigurationError.together(problems)


def _real_location(location: tuple[str | int, ...], merged: Any) -> tuple[str | int, ...]:
    """The path in the file: pydantic adds the names of union members, which are no keys."""
    real: list[str | int] = []
    for index, part in enumerate(location):
        known = (
            (isinstance(merged, Mapping) and part in merged)
            or (isinstance(merged, list) and isinstance(part, int) and part < len(merged))
            or (index == len(location) - 1 and isinstance(merged, Mapping))
        )
        if not known:
            break
        real.append(part)
        merged = merged.get(part) if isinstance(merged, Mapping) else merged[part]
    return tuple(real)


def _dotted(location: Iterable[str | int]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text


def _problem(found: list[ErrorDetails], location: tuple[str | int, ...]) -> tuple[str, str | None]:
    """What is wrong with one key; ``found`` has several entries where none of several forms fits."""
    kind, value = found[0]["type"], found[0]["input"]
    if kind == "missing":
        return "is missing", None
    if kind == "extra_forbidden":
        model = next(iter(_models_in(_annotation_at(location[:-1]))), None)
        return "no such key", nearest(str(location[-1]), _fields(model)) if model is not None else None
    if kind in ("model_type", "dict_type"):
        model = next(iter(_models_in(_annotation_at(location))), None)
        keys = f" with keys {', '.join(_fields(model))}" if model is not None else ""
        return _with_value(f"expected a section{keys}", value, location), None
    if kind in _SECONDS_KINDS and location and str(location[-1]).endswith("_s"):
        return _with_value("expected a number of seconds", value, location), None
    if kind in _PLAIN:
        return _with_value(_PLAIN[kind], value, location), None
    messages = [details["msg"].removeprefix("Value error, ") for details in found]
    message = ", or ".join(message[:1].lower() + message[1:] for message in dict.fromkeys(messages))
    suggestion = None
    if kind == "literal_error" and isinstance(value, str):
        expected = str(found[0].get("ctx", {}).get("expected", ""))
        suggestion = nearest(value, [choice.strip("'") for choice in expected.replace(" or ", ", ").split(", ")])
    return _with_value(message, value, location), suggestion


def _with_value(message: str, value: object, location: tuple[str | int, ...]) -> str:
    """The message and what was found, unless that may be secret or is long-winded."""
    if not location or _is_secret(location) or isinstance(value, dict | list) or "@" in str(value):
        # A url may hold credentials.
        return message
    shown = repr(value)
    if len(shown) > _ECHO_LIMIT:
        shown = shown[: _ECHO_LIMIT - 3] + "..."
    return f"{message}, not {shown}"
