# SPDX-License-Identifier: Apache-2.0
"""Between a command and who runs it, a person or a script: what is written where, what is asked, being told to
stop.
"""
