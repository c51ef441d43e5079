# SPDX-License-Identifier: Apache-2.0
# Nothing needs to be typed before any of these on a fresh clone: what a target needs is made first.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup preflight demo up down class-archive lint format types docs ui screenshots test test-unit test-all test-pythons bench jars jar-checksums constraints audit licences dist clean

# Names, logs and specs are UTF-8 for every Python that a target starts, whatever the locale of the terminal is.
export PYTHONUTF8 := 1
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
# Arguments for pytest: make test PYTEST="-k ledger -x"; with -n 0 in one process, in the order of the files.
PYTEST ?=
# So many processes share the tests of `make test`. They wait more than they compute: two for each core.
WORKERS ?= 4
SHARED := -n $(WORKERS)
# The tests' own byte code is kept, whatever the environment says: each process would rewrite all their asserts anew.
PYTHON_TEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

help: ## what can be asked for
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## .venv with the project and its tools installed

$(STAMP): setup.cfg pyproject.toml requirements-dev.txt dev/setup.sh
	@bash dev/setup.sh $(VENV)
	@touch $@

preflight: $(STAMP) ## everything this machine must have, checked at once
	@$(BIN)/python -m dev.preflight

jars: $(STAMP) ## Java jars of the local broker and of the connector's events, each with its listed SHA-256
	@$(BIN)/python -m dev.jars

class-archive: $(STAMP) jars ## Java classes of Spark and broker, archived once: those of the tests start in half the time
	@$(BIN)/python -m dev.class_archive

demo: preflight ## land real data, kill Spark in mid-window, take the catalog away: one numbered screen
	@$(BIN)/python -m dev.demo

up: preflight ## a local stack for the Airflow UI: broker, catalog, warm Spark, Airflow; CLUSTER=1: a Spark cluster; S3=1: an S3 server
	@LAKECOMMIT_SPARK_CLUSTER=$(CLUSTER) LAKECOMMIT_S3=$(S3) $(BIN)/python -m dev.stack up

down: $(STAMP) ## stop what `make up` started
	@$(BIN)/python -m dev.stack down

lint: $(STAMP) ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(STAMP) ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(STAMP) ## mypy, strict
	@$(BIN)/mypy

docs: $(STAMP) ## HTML documentation in docs/_build/html; warnings are errors
	@$(BIN)/sphinx-build --builder html --fresh-env --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "docs/_build/html/index.html"

ui: $(STAMP) ## the page "Lake commits": checks, tests, build; needs Node.js 20 or newer
	@$(BIN)/python -m dev.page

screenshots: preflight ## the pictures of the documentation, from a live Airflow; needs Chromium
	@$(BIN)/python -m dev.screenshots

test: preflight jars class-archive ## all tests that need no root, PostgreSQL or browser
	@$(PYTHON_TEST) $(SHARED) --durations=20 -m "not heavy and not postgres and not ui and not campaign and not airflow_long and not engine and not toxiproxy and not metastore and not rest and not s3 and not registry and not worker and not debezium and not cluster" $(PYTEST)

test-unit: $(STAMP) ## the tests that need nothing but Python: no broker, no Spark, no Airflow
	@$(PYTHON_TEST) $(SHARED) tests/unit $(PYTEST)

test-all: preflight jars class-archive ## also the tests that need more, then what could not be run and why
	@$(BIN)/python -m dev.test_all $(PYTEST)

test-pythons: preflight jars ## the unit tests and a landing on each other Python that is here: 3.12 and 3.13
	@WORKERS=$(WORKERS) bash dev/test_pythons.sh $(PYTEST)

bench: preflight jars ## 2 M orders, checked row by row, beside a plain process; FORMAT=avro SHAPE=wide PEERS="spark connect"
	@$(BIN)/python -m bench $(if $(FORMAT),--format $(FORMAT)) $(if $(SHAPE),--shape $(SHAPE)) $(if $(PEERS),--peers $(PEERS))

constraints: $(STAMP) ## write the locked versions anew; UPGRADE=--upgrade takes the newest
	@bash dev/constraints.sh $(BIN) $(UPGRADE)

jar-checksums: $(STAMP) ## write dev/jars.sha256 anew, compared with what is published beside each jar
	@$(BIN)/python -m dev.list_jars

audit: $(STAMP) ## known vulnerabilities of the locked versions; fails where the database cannot be asked
	@$(BIN)/python -m dev.audit $(AUDIT)

licences: $(STAMP) ## the licence of every installed library; fails on an unknown or incompatible one
	@$(BIN)/python -m dev.licences

dist: $(STAMP) ## wheel and source archive of the last commit in dist/: make dist REPOSITORY=https://…
	@$(BIN)/python -m dev.dist "$(REPOSITORY)"

clean: ## remove what these targets made in the checkout; what `make up` started is stopped first
	@if [ -e $(STAMP) ] && [ -e .run ]; then $(BIN)/python -m dev.stack down; fi
	rm -rf $(VENV) .run build dist docs/_build docs/_generated docs/reference/commands *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
