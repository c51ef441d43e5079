# SPDX-License-Identifier: Apache-2.0
"""Landing as records come: one run that waits for the next window where another would end.

A follow is cycles like those of any run, in the same loop; here is what stands between them: when the next window is
opened, what an error does, what is said once in a while, and how the tables stay small.
"""
