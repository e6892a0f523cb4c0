"""The adapter for dbt: real projects, with a dbt of an environment of its own (``make dbt``).

``STRANDLINE_DBT`` is the path of its ``dbt``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import strandline
from tests.processes import environment

ROOT = Path(__file__).parent.parent.parent
DBT = os.environ.get("STRANDLINE_DBT", "")
FILE = re.compile(r"^```(?:yaml|jinja|csv)\n(?:#|--) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(not DBT, reason="needs dbt, which make dbt installs in an environment of its own"),
]


@dataclass
class Project:
    """A dbt project in a folder."""

    folder: Path

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def run(self, *words: str, fails: bool = False) -> str:
        """Run dbt; return what it prints."""
        given = {**environment(), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "NO_COLOR": "1"}
        done = subprocess.run(
            [str(Path(DBT).absolute()), *words, "--profiles-dir", "."],
            cwd=self.folder,
            env={name: value for name, value in given.items() if name != "PYTHONPATH"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout

    def open(self) -> strandline.Database:
        return strandline.connect(str(self.folder / "warehouse"), create=False)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        with self.open() as db:
            return [tuple(row) for row in db.sql(text).rows()]

    def seed(self, *lines: str) -> None:
        self.write("seeds/raw_orders.csv", "\n".join(("id,customer,amount,day", *lines)) + "\n")


ORDERS = "SELECT id, customer, amount FROM `analytics/orders` ORDER BY id"
SEED = ("1,ada,9.5,2026-01-01", "2,eve,20,2026-01-02", "3,ada,,2026-01-03")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The project of the page."""
    made = Project(tmp_path)
    page = (ROOT / "docs/how-to/dbt.md").read_text("utf-8")
    for name, text in FILE.findall(page):
        made.write(name, text)
    return made


def test_the_project_of_the_page_is_built(project: Project) -> None:
    project.run("build")
    assert project.rows(ORDERS) == [(1, "ada", 9.5), (2, "eve", 20.0), (3, "ada", None)]
    found = project.rows("SELECT id, amount FROM `analytics/orders` VIEW by_customer WHERE customer = 'eve'")
    assert found == [(2, 20.0)]
    assert project.rows("SELECT * FROM `analytics/customers` ORDER BY customer") == [
        ("ada", 2, 9.5),
        ("eve", 1, 20.0),
    ]
    with project.open() as db:
        described = db.describe("/analytics/orders")
        assert described["key"] == ["id"]
        assert [index["cover"] for index in described["indexes"]] == [["amount"]]
        assert db.check("/analytics/orders").ok
    project.run("docs", "generate")
    catalog = json.loads((project.folder / "target" / "catalog.json").read_text("utf-8"))
    assert catalog["errors"] is None
    described = catalog["nodes"]["model.shop.orders"]
    assert {name: column["type"] for name, column in described["columns"].items()} == {
        "id": "Int64",
        "customer": "Utf8",
        "amount": "Double",
        "day": "Date",
    }
    assert described["stats"]["rows"]["value"] == 3


def test_a_second_run_writes_only_what_differs(project: Project) -> None:
    project.run("build")
    with project.open() as db:
        db.sql("ALTER TABLE `analytics/customers` ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE')")
        before = db.describe("/analytics/customers")["created_step"]
    project.seed(*SEED[:2], "3,ada,5,2026-01-03", "4,zoe,1,2026-01-04")
    project.run("build")
    assert project.rows(ORDERS) == [(1, "ada", 9.5), (2, "eve", 20.0), (3, "ada", 5.0), (4, "zoe", 1.0)]
    with project.open() as db:
        records = db.stream("/analytics/customers/f").records()
        assert db.describe("/analytics/customers")["created_step"] == before
        assert "__dbt_tmp" not in str(db.sql("SHOW TABLES").rows() + db.sql("SHOW BIN").rows())
    assert [(record["op"], record["customer"], record["amount"]) for record in records] == [
        ("U", "ada", 14.5),
        ("U", "zoe", 1.0),
    ]
    history = "SELECT customer, amount, dbt_valid_to IS NULL FROM `analytics/customers_history` ORDER BY 1, 2"
    assert project.rows(history) == [
        ("ada", 9.5, False),
        ("ada", 14.5, True),
        ("eve", 20.0, True),
        ("zoe", 1.0, True),
    ]


def test_a_rebuilt_table_loses_the_rows_that_its_query_lost(project: Project) -> None:
    project.run("build")
    project.seed(SEED[0])
    project.run("build", "--full-refresh")
    assert project.rows(ORDERS) == [(1, "ada", 9.5)]
    assert project.rows("SELECT * FROM `analytics/customers`") == [("ada", 1, 9.5)]


def test_a_model_with_other_columns_takes_the_place_of_its_table(project: Project) -> None:
    project.run("build")
    project.write(
        "models/customers.sql",
        "{{ config(key=['customer', 'orders']) }}\n"
        "SELECT customer, count(*) AS orders, max(day) AS last FROM {{ ref('orders') }} GROUP BY customer",
    )
    project.run("run", "--select", "customers")
    with project.open() as db:
        assert db.describe("/analytics/customers")["key"] == ["customer", "orders"]
        assert [row[0] for row in db.sql("SHOW BIN").rows()] == ["/analytics/customers"]


def test_columns_are_added_as_the_model_says(project: Project) -> None:
    project.run("build")
    project.write(
        "models/orders.sql",
        "{{ config(materialized='incremental', unique_key='id', on_schema_change='append_new_columns') }}\n"
        "SELECT id, customer, amount, day, upper(customer) AS shout FROM {{ ref('raw_orders') }}\n"
        "{% if is_incremental() %} WHERE id = 2 {% endif %}",
    )
    project.run("run", "--select", "orders")
    assert project.rows("SELECT id, shout FROM `analytics/orders` ORDER BY id") == [
        (1, None),
        (2, "EVE"),
        (3, None),
    ]


def test_a_failing_test_fails_the_build_and_sources_are_tables_that_are_there(project: Project) -> None:
    with strandline.connect(str(project.folder / "warehouse")) as db:
        db.create_table("visits", [{"n": 1, "who": "ada"}, {"n": 2, "who": None}], key=["n"])
    project.write(
        "models/sources.yml",
        "version: 2\nsources:\n  - name: files\n    schema: /\n    tables:\n      - name: visits\n"
        "        columns:\n          - name: who\n            data_tests: [not_null]\n",
    )
    project.write(
        "models/visitors.sql",
        "{{ config(key='n') }} SELECT n, who FROM {{ source('files', 'visits') }} WHERE who IS NOT NULL",
    )
    said = project.run("build", "--select", "source:files+", fails=True)
    assert "Got 1 result, configured to fail if != 0" in said
    project.run("run", "--select", "visitors")
    assert project.rows("SELECT * FROM `analytics/visitors`") == [(1, "ada")]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("materialized='view'", "Strandline has no views"),
        ("materialized='table'", "needs a primary key"),
        ("key='nothing'", "nothing"),
        ("key='customer'", "customer"),
        ("key='id', contract={'enforced': true}", "contracts are not supported"),
        ("materialized='incremental', key='id', incremental_strategy='delete+insert'", "delete\\+insert"),
    ],
)
def test_what_is_refused_says_what_to_do(project: Project, config: str, said: str) -> None:
    project.run("seed")
    project.write(
        "models/refused.sql",
        f"{{{{ config({config}) }}}} SELECT id, customer FROM {{{{ ref('raw_orders') }}}}",
    )
    if "contract" in config:
        project.write(
            "models/refused.yml",
            "version: 2\nmodels:\n  - name: refused\n    columns:\n      - {name: id, data_type: Int64}\n"
            "      - {name: customer, data_type: Utf8}\n",
        )
    if "incremental" in config:
        project.run("run", "--select", "refused")  # The first run creates the table.
    printed = project.run("run", "--select", "refused", fails=True)
    assert re.search(said, printed), printed
    assert "Traceback" not in printed


def test_failures_of_tests_are_not_stored(project: Project) -> None:
    project.run("build")
    printed = project.run("test", "--store-failures", fails=True)
    assert "the failures of a test cannot be stored" in printed


def test_a_warehouse_that_is_not_there_is_named(project: Project) -> None:
    profile = (project.folder / "profiles.yml").read_text("utf-8")
    project.write("profiles.yml", profile.replace("      create: true\n", ""))
    printed = project.run("build", fails=True)
    assert "Create it with: strandline init" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("name", ["a'b", "naïve", "select", "with space"])
def test_columns_with_odd_names(project: Project, name: str) -> None:
    project.write(
        "models/odd.sql",
        "{{ config(materialized='incremental', key='id') }}"
        f" SELECT id, customer AS `{name}` FROM {{{{ ref('raw_orders') }}}}",
    )
    project.run("build", "--select", "+odd")
    project.seed(*SEED[:2], "3,new,1,2026-01-01")
    project.run("build", "--select", "+odd")
    found = project.rows(f"SELECT `{name}` FROM `analytics/odd` ORDER BY id")
    assert found == [("ada",), ("eve",), ("new",)]
