# SPDX-License-Identifier: Apache-2.0
"""An S3 server on 127.0.0.1: versitygw (Apache-2.0), built from the Go module proxy, on a folder of the local disk.

Contract: :func:`ready` builds the program once into the run directory (needs Go, takes a few minutes) and needs no
network later. :class:`S3Server` runs it with one bucket, :data:`BUCKET`. It verifies signatures, keeps multipart
uploads, and stores objects as files below its folder, so they survive a restart. :attr:`S3Server.properties` are the
storage properties of a pyiceberg catalog; :meth:`S3Server.properties_at` are those for a proxy before the server.

Failure story: if Go is missing, the build fails or the server does not answer, :class:`S3ServerError` has the output.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dev.go import built
from dev.paths import run_dir
from dev.servers.server import Server, ServerError

PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"
BUCKET = "lake"
REGION = "us-east-1"
ACCESS_KEY = "AKLAKECOMMITTESTS"
SECRET_KEY = "a-secret-key-of-the-tests"


class S3ServerError(ServerError):
    """The server could not be built, or does not start."""


def ready() -> Path:
    """Return the program, after building it if it is missing.

    :raises S3ServerError: Go is missing, or the build failed
    """
    return built(run_dir() / "s3", PACKAGE, VERSION, name="versitygw", error=S3ServerError)


class S3Server(Server):
    """One server, its bucket and its process."""

    name = "s3"
    what = "S3 server"
    error = S3ServerError
    start_seconds = 30.0

    def command(self) -> list[str]:
        program = str(ready())
        # A folder below the root is a bucket. What S3 knows of an object beyond its content is in the sidecar: not all
        # file systems have extended attributes.
        (self.bucket).mkdir(parents=True, exist_ok=True)
        sidecar = self.directory / "sidecar"
        sidecar.mkdir(exist_ok=True)
        keys = ["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION]
        posix = ["posix", "--sidecar", str(sidecar), str(self.bucket.parent)]
        return [program, *keys, "--port", f"127.0.0.1:{self.port}", "--quiet", *posix]

    @property
    def bucket(self) -> Path:
        """The folder of the bucket: one file per object."""
        return self.directory / "root" / BUCKET

    @property
    def properties(self) -> dict[str, str]:
        """Storage properties and warehouse, for pyiceberg."""
        return self.properties_at(self.port)

    def properties_at(self, port: int) -> dict[str, str]:
        """The same through a proxy at another port of 127.0.0.1."""
        return {
            "warehouse": f"s3://{BUCKET}/warehouse",
            "s3.endpoint": f"http://127.0.0.1:{port}",
            "s3.region": REGION,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "s3.force-virtual-addressing": "false",
        }


def main() -> int:
    """`python -m dev.servers.s3`: build it."""
    try:
        print(ready())
    except S3ServerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
