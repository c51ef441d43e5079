# SPDX-License-Identifier: Apache-2.0
"""Whether commits get through. Events to state, state to verdict, and what a guard makes of it."""
