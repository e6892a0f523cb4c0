"""What makes a JVM cheaper that runs many small queries."""

from __future__ import annotations

from typing import Any

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
"""A test asks many different queries of few rows each, and no code runs for long enough to earn back what the
second compiler spends on it: more than half of the processor time. Nor is there a large heap to be collected
beside the work. With one compiler there would be little room for its code, which would then be thrown away
and made again."""


def remember_names() -> None:
    """Let Py4J ask the JVM once what a name means. PySpark asks for the same few classes with every
    expression, and to find that a package is no class takes a look into each of Spark's archives."""
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        JavaClass,
        JavaMember,
        JavaPackage,
        JVMView,
    )

    def remembering(look: Any) -> Any:
        def found(self: Any, name: str) -> Any:
            meaning = look(self, name)
            if isinstance(meaning, JavaClass | JavaMember | JavaPackage):
                self.__dict__[name] = meaning
            return meaning

        return found

    for kind in (JVMView, JavaPackage, JavaClass):
        kind.__getattr__ = remembering(kind.__getattr__)
