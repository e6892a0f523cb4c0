"""``version``: print the versions of Strandline and its main dependencies."""

from __future__ import annotations

import typer

from strandline.cli.options import START_HERE, command
from strandline.cli.session import Cli


def register(app: typer.Typer) -> None:
    command(app, "version", START_HERE, example="strandline version")(version)


def version(cli: Cli) -> None:
    """Print the versions of Strandline, Python, PySpark, PyArrow and SQLAlchemy.

    Needs no warehouse and starts no JVM."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from strandline import __version__

    found = {"strandline": __version__, "python": platform.python_version()}
    for package in ("pyspark", "pyarrow", "sqlalchemy"):
        try:
            found[package] = installed(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    cli.output.result(found, lambda: cli.output.fields(found.items()))
