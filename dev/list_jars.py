# SPDX-License-Identifier: Apache-2.0
"""`python -m dev.list_jars`: fetch all Java archives and write `dev/jars.sha256` anew, after a change of `ivy*.xml`."""

from __future__ import annotations

import sys

from dev import jars
from dev.jar_checksums import LIST, ChecksumError, write
from dev.java import JavaMissingError
from dev.paths import run_dir


def main() -> int:
    """Fetch everything and write the list."""
    try:
        places = jars.fetch(*(conf for confs in jars.FILES.values() for conf in confs), check=False)
        count = write(places.values(), run_dir() / "ivy")
    except (ChecksumError, jars.JarsError, JavaMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"dev/{LIST.name}: {count} archives")
    return 0


if __name__ == "__main__":
    sys.exit(main())
