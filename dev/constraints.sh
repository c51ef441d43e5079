#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Write requirements-dev.txt (versions and hashes, installed by `make setup`) and constraints.txt (the same versions, for
# users) anew from the ranges in setup.cfg. $1 is a bin folder with uv; what follows is passed on to `uv pip compile`.
# Both files are for every Python from 3.11 on and every platform: each version comes with the hashes of all its files.
# A version that is locked stays if it still fits; --upgrade takes the newest of all, --upgrade-package NAME of one.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1
shift
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

cp requirements-dev.txt "$new/lock" 2>/dev/null || cp constraints.txt "$new/lock"
"$bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
  --no-emit-index-url --no-emit-find-links "$@" \
  --extra dev --extra postgres --extra sql-sqlite --output-file "$new/lock" setup.cfg
if grep -n '://' "$new/lock"; then
  echo "An address would be written; nothing was." >&2
  exit 1
fi
{
  cat <<'HEADER'
# What `make setup` installs, and nothing else: exact versions, and the SHA-256 of every file that may be taken for one.
# Made by `make constraints` from setup.cfg.
HEADER
  grep -v '^#' "$new/lock"
} > "$new/requirements-dev.txt"
{
  cat <<'HEADER'
# The set of versions this project is tested with: pip install --constraint constraints.txt airflow-provider-lakecommit
# Made by `make constraints`, without the hashes of requirements-dev.txt. Only these versions are pinned exactly; the
# ranges that a user's installation obeys are in setup.cfg.
HEADER
  sed -nE 's/^([a-z0-9].*==[^\\]*[^\\ ]) *\\?$/\1/p' "$new/lock" | grep -vE '^(pip|setuptools|wheel)=='
} > "$new/constraints.txt"
mv "$new/requirements-dev.txt" "$new/constraints.txt" .
