#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Print the first Python this project runs on; say what is missing when there is none.
set -u
for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
  if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1; then
    command -v "$candidate"
    exit 0
  fi
done
echo "No Python 3.11 to 3.13 was found (tried: ${PYTHON:-} python3 python3.13 python3.12 python3.11)." >&2
echo "Remedy: install one (Debian or Ubuntu: apt-get install python3.11 python3.11-venv) or run: make PYTHON=/path/to/python3.12 …" >&2
exit 1
