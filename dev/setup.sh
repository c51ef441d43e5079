#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the virtual environment $1: check this machine first, then install what requirements-dev.txt lists, and the
# project. Every file that is fetched must have a SHA-256 that is written there: uv, by which all else is installed, and
# what pyspark is built with, too. Safe to run again: it mends what an interrupted run left.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
python=$(bash dev/find_python.sh)
"$python" -m dev.preflight --before-install

if ! "$venv/bin/python" -c '' 2>/dev/null; then
  echo "making $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv"
fi
echo "installing the project and its tools into $venv (one or two minutes when nothing is cached)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
  --requirement <(sed -n '/^uv==/,/[^\\]$/p' requirements-dev.txt)
# With byte code, where the environment forbids Python to keep it (PYTHONDONTWRITEBYTECODE), too: the many processes of
# the tests and of Airflow would compile seconds of libraries each, every time.
"$venv/bin/uv" pip sync --quiet --compile-bytecode --python "$venv/bin/python" --require-hashes \
  --build-constraints requirements-dev.txt requirements-dev.txt
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
# The build leaves its notes in the checkout. Python would find the distribution there a second time, and Airflow would
# tell of a plugin that is registered already.
rm -rf ./*.egg-info
"$venv/bin/python" -m compileall -q airflow_provider_lakecommit
echo "$venv is ready"
