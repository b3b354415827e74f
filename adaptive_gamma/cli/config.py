"""``adaptive-gamma config``: look at a configuration without serving."""

from __future__ import annotations

from pathlib import Path

import click

from adaptive_gamma.cli.json_schemas import CONFIG, POLICY, schema_text
from adaptive_gamma.cli.reload import Configuration

__all__ = ["command"]


@click.group("config", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Check a configuration, and print the schemas that editors complete and check by."""


@command.command("check")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--policy", help="Policy file, in place of the configured one.")
def check(file: Path | None, policy: str | None) -> None:
    """Read FILE, the ADAPTIVE_GAMMA_* variables and the policy they name as `serve` does; nothing is contacted.

    Exit code 0 when `serve` would start from it, else 2, with each wrong key, what was expected and the nearest right
    one. Without FILE everything comes from the variables.

    \b
    Example:
      adaptive-gamma config check adaptive-gamma.yaml
    """
    settings, loaded = Configuration(file, {"policy": policy}).load()
    pools = ["plain" if replica.gamma == 0 else "speculative" for replica in settings.replicas]
    found = f"{len(pools)} replicas ({pools.count('speculative')} speculative, {pools.count('plain')} plain)"
    if settings.discovery is not None:
        found += f", more from discovery ({len(settings.discovery.services)} services)"
    click.echo(f"good: {found}; policy {loaded.name}; mode {settings.mode}; listen {settings.listen}")


@command.command("schema")
@click.option("--of", "which", type=click.Choice(["config", "policy"]), default="config", show_default=True)
def schema(which: str) -> None:
    """Print the JSON schema of a configuration, or of a policy file.

    An editor with a YAML language server takes it from a first line in the file:

    \b
      adaptive-gamma config schema > config.schema.json
      # yaml-language-server: $schema=config.schema.json
    """
    click.echo(schema_text(CONFIG if which == "config" else POLICY), nl=False)
