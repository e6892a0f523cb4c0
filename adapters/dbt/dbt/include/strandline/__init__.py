"""The macros of the adapter, in the form of a dbt project."""

import os

PACKAGE_PATH = os.path.dirname(__file__)
