#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run the unit tests, and one landing with Spark, on each other supported Python that this machine has, each in a virtual
# environment of its own. A version that is not here is named; one that fails fails the whole.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
for version in 3.12 3.13; do
  python=$(command -v "python$version" || compgen -G "$HOME/.pyenv/versions/$version.*/bin/python$version" | tail -1)
  if [ -z "$python" ] || ! "$python" -c '' 2>/dev/null; then
    echo "NOT RUN: there is no Python $version here"
    continue
  fi
  venv=.venv-$version
  echo "== $("$python" --version)"
  PYTHON=$python bash dev/setup.sh "$venv" &&
    PYTHONDONTWRITEBYTECODE= "$venv/bin/python" -m pytest -n "${WORKERS:-4}" -m "not heavy" \
      tests/unit tests/integration/test_cli_land.py "$@" || failed=1
done
exit $failed
