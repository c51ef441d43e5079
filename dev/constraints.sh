#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Print constraints.txt for what is installed beside $1 (a bin folder): exact versions, no addresses, no build tools.
set -euo pipefail
cat <<'X'
# The set of versions this project is tested with; `make setup` and CI install under it. Made by `make constraints`.
# Only these versions are pinned exactly; the ranges that a user's installation obeys are in setup.cfg.
X
"$1/uv" pip freeze --python "$1/python" --exclude-editable | grep -viE '^(pip|setuptools|wheel)=='
