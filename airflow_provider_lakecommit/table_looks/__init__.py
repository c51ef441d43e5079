# SPDX-License-Identifier: Apache-2.0
"""Looks at tables, now and then, for somebody who may neither wait for them nor load what reads them: in a process of
their own that ends behind its answers.
"""
