"""``metrics``: print the metrics of the warehouse."""

from __future__ import annotations

from typing import Any

import typer

from strandline.cli.options import CARE, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(app, "metrics", CARE, example="strandline metrics")(metrics)


def metrics(cli: Cli) -> None:
    """Print the metrics of the warehouse in the Prometheus text format, or as JSON with --json.

    Counters are summed over all processes. Gauges show operations, backups and streams as they are now."""
    with cli.database() as db:
        text = db.metrics()
    samples: list[dict[str, Any]] = []
    if cli.output.as_json:
        from prometheus_client.parser import text_string_to_metric_families

        samples = [
            {"name": s.name, "labels": s.labels, "value": s.value}
            for family in text_string_to_metric_families(text)
            for s in family.samples
        ]
    cli.output.result(samples, lambda: cli.output.line(text.rstrip("\n")))
