# SPDX-License-Identifier: Apache-2.0
"""The commands on the environment of Python that this program runs in.

Contract: that of :mod:`~airflow_provider_lakecommit.cli.commands`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from airflow_provider_lakecommit.cli.arguments import Command
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["EnvPackCommand"]


class EnvPackCommand(Command):
    says = "pack the libraries of the tasks for the executors of a cluster"
    spec = "none"
    examples = (
        "env pack",
        "env pack -o /shared/lakecommit.tar.gz --also my-decoders --python /usr/bin/python3.11",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-o", "--output", default="environment.tar.gz", metavar="FILE", help="the archive (default: %(default)s)")
        further = "a further distribution, with all that it requires (may be repeated)"
        add("--also", action="append", default=[], metavar="NAME", help=further)
        add("--python", metavar="PATH", help="of the interpreter on the executors (default: the path of the one here)")

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.engines.env_pack import pack, spark_conf

        file = Path(options.output).absolute()
        packed = pack(file, also=options.also, python=options.python)
        conf = spark_conf(file)
        if options.json:
            values = {"bytes": packed.size, "python": packed.python, "distributions": dict(packed.distributions)}
            output.result({"file": str(file), **values, "conf": conf})
            return Exit.DONE
        output.log(
            f"{file}: {packed.size / 1e6:.0f} MB, {len(packed.distributions)} distributions; executors need "
            f"{packed.python}. Settings of Spark:"
        )
        output.lines(f"{key}={value}" for key, value in conf.items())
        return Exit.DONE
