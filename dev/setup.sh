#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the virtual environment $1: check this machine first, then install the project under constraints.txt.
# Safe to run again: it mends what an interrupted run left.
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
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --constraint constraints.txt --editable '.[dev,sql-sqlite]'
echo "$venv is ready"
