# SPDX-License-Identifier: Apache-2.0
"""What a table needs now and then: files that no slice needs any more are removed, old snapshots are expired.

Contract: nothing here adds or takes a row, and nothing is needed for landing. What is removed can never be needed
again.
"""
