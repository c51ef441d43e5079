# SPDX-License-Identifier: Apache-2.0
"""What `lakecommit doctor` looks at, each module one part of what a landing stands on. It looks and changes nothing."""
