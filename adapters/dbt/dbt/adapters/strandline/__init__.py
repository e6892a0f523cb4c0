"""The dbt adapter of Strandline."""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.strandline.connections import StrandlineConnectionManager, StrandlineCredentials
from dbt.adapters.strandline.impl import StrandlineAdapter
from dbt.include import strandline

__all__ = ["Plugin", "StrandlineAdapter", "StrandlineConnectionManager", "StrandlineCredentials"]

Plugin = AdapterPlugin(
    adapter=StrandlineAdapter,  # type: ignore[arg-type]
    credentials=StrandlineCredentials,
    include_path=strandline.PACKAGE_PATH,
)
