# SPDX-License-Identifier: Apache-2.0
"""Tools of a checkout: jars, a local broker, preflight. Not part of the installed package."""
