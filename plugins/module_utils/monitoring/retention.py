# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keep metrics for a time: arguments of Prometheus and Thanos, one a line for their @FILE, and the bucket. Pure.

Neither Thanos nor Grafana is packaged where this was written: their files were checked in form, and never used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OBJSTORE = "/etc/prometheus/thanos/objstore.yml"
DATA = "/var/lib/prometheus/metrics2"  # of Debian's prometheus.service
QUERY_PORT = 10904
# Thanos makes 5-minute samples after 40 hours and 1-hour samples after 10 days: raw ones must live longer than that.
LEAST_RAW_DAYS, LEAST_FIVE_MINUTES_DAYS = 2, 11


@dataclass(frozen=True)
class Retention:
    """Days, as in arXiv 2407.05467, table 3. Without Thanos only ``raw_days`` counts."""

    raw_days: int = 30
    five_minutes_days: int = 90
    hour_days: int = 365


@dataclass(frozen=True)
class Thanos:
    """The bucket in S3, whose credentials are a file on the servers, and the sidecars that Thanos' query asks."""

    bucket: str
    endpoint: str
    sidecars: Sequence[str]


def argument_files(retention: Retention, thanos: Thanos | None) -> dict[str, str]:
    """Return the files of arguments by name."""
    by_program = {"prometheus": [f"--storage.tsdb.retention.time={retention.raw_days}d"]}
    if thanos:
        # Equal durations keep Prometheus from compacting blocks that the sidecar uploads.
        by_program["prometheus"] += [f"--storage.tsdb.{end}-block-duration=2h" for end in ("min", "max")]
        by_program["prometheus"].append("--enable-feature=expand-external-labels")
        by_program.update(_of_thanos(retention, thanos))
    return {f"arguments/{name}": "".join(f"{line}\n" for line in lines) for name, lines in by_program.items()}


def _of_thanos(retention: Retention, thanos: Thanos) -> dict[str, list[str]]:
    bucket = f"--objstore.config-file={OBJSTORE}"
    endpoints = [*thanos.sidecars, "127.0.0.1:10905"]
    return {
        "thanos-sidecar": [
            "sidecar",
            f"--tsdb.path={DATA}",
            "--prometheus.url=http://127.0.0.1:9090",
            "--grpc-address=0.0.0.0:10901",
            "--http-address=127.0.0.1:10902",
            bucket,
        ],
        "thanos-store": [
            "store",
            "--data-dir=/var/lib/thanos/store",
            "--grpc-address=127.0.0.1:10905",
            "--http-address=127.0.0.1:10906",
            bucket,
        ],
        # One compactor for a bucket, never two.
        "thanos-compact": [
            "compact",
            "--wait",
            "--data-dir=/var/lib/thanos/compact",
            "--http-address=127.0.0.1:10912",
            f"--retention.resolution-raw={retention.raw_days}d",
            f"--retention.resolution-5m={retention.five_minutes_days}d",
            f"--retention.resolution-1h={retention.hour_days}d",
            bucket,
        ],
        "thanos-query": [
            "query",
            "--query.replica-label=replica",
            f"--http-address=127.0.0.1:{QUERY_PORT}",
            "--grpc-address=127.0.0.1:10903",
            *(f"--endpoint={endpoint}" for endpoint in endpoints),
        ],
    }


def objstore(thanos: Thanos) -> dict[str, Any]:
    """Return the file of the bucket: the AWS SDK finds the secret by AWS_SHARED_CREDENTIALS_FILE of the services."""
    return {
        "type": "S3",
        "config": {"bucket": thanos.bucket, "endpoint": thanos.endpoint, "aws_sdk_auth": True},
    }
