PYTHON ?= python3
SEEDS ?= 100
ROUNDS ?= 1-250
# One more than there are cores: some test always waits, for a server, for the disk or for another process.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WORKERS ?= $(shell expr $(CORES) + 1)
BIN := .venv/bin
STAMP := .venv/.installed
LOWEST := build/lowest
DBT := build/dbt
ON_S3 := tests/storage/test_files_anywhere.py tests/storage/test_objects.py tests/storage/spark/test_on_objects.py tests/api/test_object_stores.py tests/backups/test_drill.py
ON_SPARK := tests/storage/spark tests/tables/test_dml.py tests/backups/test_on_spark.py tests/api/source

# Compiled modules are kept, also where the environment says otherwise: pytest rewrites every test module, and
# without them does it again in each worker and each run.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup doctor demo docs fresh quick test engines cluster exhaustive lowest matrix s3 azure dbt console check format lint types collected shared pytest bench peers simulate clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

doctor: ## Check that Python 3.10+ and Java 17+ are there
	@bash tools/doctor.sh $(PYTHON)

setup: $(STAMP) ## Create .venv and install everything (again only when a version changed)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || \
		{ echo "Could not create .venv. On Debian and Ubuntu: sudo apt-get install python3-venv" >&2; rm -rf .venv; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,postgres,connect]' -c constraints.txt
	@touch $@

demo: doctor setup ## Back up and restore a table with its indexes, and explain each step
	@$(BIN)/strandline demo

docs: setup ## Build the documentation into build/site
	@$(BIN)/python -m mkdocs build --strict --quiet
	@echo "wrote build/site/index.html"

fresh: doctor ## Clone, install and try as a newcomer would: the README's three lines, the tutorial, the how-to pages
	@PYTHON=$(PYTHON) bash tools/fresh.sh

quick: setup lint collected types ## Run what is fast: lint, types, and the tests that need no Spark and are not slow
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m 'not spark and not slow'

test: doctor setup lint collected shared types ## Run all checks without changing a file: lint, format, types, tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

engines: doctor setup ## Compare 10,000 random queries in the process and on Spark, or some rounds: make engines ROUNDS=17-20
	STRANDLINE_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -s tests/tables/test_engines_agree.py

cluster: doctor setup ## Run all tests on a Spark cluster and over Spark Connect, both started on this machine
	STRANDLINE_CLUSTER=1 $(BIN)/python -m pytest tests/cluster

exhaustive: doctor setup ## Run the tests with every crash point on both catalogs and on Spark, and eight times the examples (hours)
	STRANDLINE_EVERY=1 STRANDLINE_EXAMPLES=8 STRANDLINE_MIX_SECONDS=1200 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -o timeout=7200

lowest: doctor $(LOWEST)/.installed ## Run the quick tests and some on Spark with the lowest versions that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist loadgroup -m 'not spark and not slow'
	$(LOWEST)/bin/python -m pytest $(ON_SPARK)

matrix: doctor setup ## Try every supported Python that is here, and every line of PySpark, e.g. make matrix ARGS="--only 3.13,4.0" (hours)
	$(BIN)/python -m tools.matrix --workers $(WORKERS) $(ARGS)

s3: doctor setup ## Run the tests of object stores on another S3 server, and with Spark (needs go and mvn)
	@bash tools/s3.sh build/s3
	STRANDLINE_VERSITYGW=build/s3/versitygw STRANDLINE_MAVEN=$(HOME)/.m2/repository $(BIN)/python -m pytest $(ON_S3)

azure: doctor setup ## Run the tests of object stores on a server that speaks Azure's protocol (needs npm)
	@bash tools/azure.sh build/azure
	STRANDLINE_AZURITE=build/azure/node_modules/.bin/azurite-blob $(BIN)/python -m pytest tests/storage/test_files_anywhere.py tests/api/test_azure.py

dbt: doctor setup $(DBT)/.installed ## Build dbt projects with the adapter, by a dbt in an environment of its own
	STRANDLINE_DBT=$(DBT)/bin/dbt $(BIN)/python -m pytest tests/dbt

$(DBT)/.installed: pyproject.toml adapters/dbt/pyproject.toml adapters/dbt/constraints.txt
	@test -x $(DBT)/bin/python || $(PYTHON) -m venv $(DBT)
	$(DBT)/bin/python -m pip install --quiet --disable-pip-version-check -e . -e adapters/dbt -c adapters/dbt/constraints.txt
	@touch $@

console: doctor setup ## Run the tests of the web console, also in a browser (needs Chromium: apt-get install chromium)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[browser]' -c constraints.txt
	$(BIN)/python -m pytest tests/console $(ARGS)

$(LOWEST)/.installed: pyproject.toml constraints.txt constraints-lowest.txt
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@awk -F '==' 'NR == FNR { low[tolower($$1)] } NR == FNR || !(tolower($$1) in low)' constraints-lowest.txt constraints.txt \
		> $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev,postgres]' -c $(LOWEST)/constraints.txt
	@touch $@

check: format test ## Format the code, then do what make test does

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --select I --fix .

lint: setup ## Lint the code and see that it is formatted
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## Check the types, strictly in src, less so elsewhere
	$(BIN)/mypy

# Beside mypy, which has one thread: what pytest makes of the modules of tests is kept, and what JVMs make of Spark's
# classes. In a new clone each worker, and each JVM, would make it for itself.
collected: setup
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 &

shared: setup
	@$(BIN)/python -m tests.speed > /dev/null 2>&1 &

pytest: setup ## Run the tests alone, e.g. make pytest ARGS="-m 'not spark' -k catalog"
	$(BIN)/python -m pytest $(ARGS)

bench: doctor setup ## Run every benchmark; each prints a table of what was measured and what was to be reached
	@for file in $$(ls bench/*.py | grep -v -E '/(report|indexes|peers|peer_data|peer_systems|comparison)\.py'); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

peers: doctor setup ## Measure the same work on Strandline, Delta and Iceberg, and write docs/comparison.md (needs mvn; hours)
	@bash tools/peers.sh build/peers
	$(BIN)/python bench/peers.py --write docs/comparison.md $(ARGS)

simulate: doctor setup ## Run random interleavings and crashes, e.g. make simulate SEEDS=10000
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --versions --seeds $(SEEDS)

clean: ## Remove .venv, caches and build output
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
