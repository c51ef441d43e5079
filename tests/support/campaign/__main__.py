# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.support.campaign``."""

import sys

from tests.support.campaign.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
