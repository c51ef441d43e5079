# SPDX-License-Identifier: Apache-2.0
"""Check what the catalog verifies in a commit request, and whether these credentials may commit at all.

*Exactly once* depends on it: a catalog that applies a request with false requirements lets a late request overwrite
other commits. pyiceberg's own catalogs compare in this process. For each kind of requirement of a landing, a request
without changes and with a false requirement is sent; the catalog must refuse it. A catalog checks the right to commit
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from pyiceberg.exceptions import CommitFailedException, ForbiddenError, UnauthorizedError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
)

from airflow_provider_lakecommit.committer import tag_name
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, fail, ok, warn

NOBODY = UUID(int=0)
NEVER = -2
"""Not the id of any snapshot."""


def commits(session: LandingSession, table: Table) -> Iterable[CheckResult]:
    check = f"commits to {'.'.join(table.name())}"
    for what, requirement in _untrue(table.metadata, session.landing.branch):
        try:
            session.tables.commit(table, (requirement,), ())
        except CommitFailedException:
            continue
        except (ForbiddenError, UnauthorizedError) as e:
            yield fail(check, session.tables.describe(e), "give these credentials the right to commit to the table")
        except Exception as e:
            yield warn(
                check,
                f"cannot check whether {what} is compared: {session.tables.describe(e)}",
                "try again; if it persists, check in the catalog's log why it does not answer with a conflict (409)",
            )
        else:
            yield fail(
                check,
                f"the catalog accepted a request that was made for another {what}",
                "do not land through this catalog: it would let a late commit overwrite other commits",
            )
        return
    yield ok(check, "allowed; a request that was made for another table, head, tag, schema or spec is refused")


def _untrue(metadata: TableMetadata, branch: str) -> Iterator[tuple[str, TableRequirement]]:
    yield "table", AssertTableUUID(uuid=NOBODY)
    for what, ref in (("head", branch), ("tag", tag_name(branch))):
        yield what, AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": NEVER})
    yield "schema", AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id + 1000})
    yield "spec", AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id + 1000})
