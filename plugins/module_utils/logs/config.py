# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The configuration of a rsyslogd that reads the journal and sends each line to its receivers. Pure.

The journal is read by a process of its own, beside the distribution's rsyslogd, which keeps its configuration. Each
receiver has a queue on disk, so that one that is gone does not stop the other; a full queue drops new lines at once.
There is no queue in memory before them. omkafka hands lines to librdkafka, which has up to KAFKA_BUFFER in memory.
bulk.py sends to Elasticsearch, and says why rsyslog's own module does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.logs.request import Kafka, LogsRequest

# Below the directory that SELinux's policy labels for rsyslogd.
WORK = "/var/lib/rsyslog/sailloft"
HEAD = "# Written by sailloft.fleet.node_logs; changes here are lost.\n"
# Lines whose place in the queue a kill of the process can lose; each checkpoint writes a small file.
CHECKPOINT_LINES = 10
BATCH_LINES = 512
KAFKA_BUFFER = 10000
COUNTS_S = 30
# With Ratelimit.Interval 0 nothing is dropped before the queues: what is not read yet stays in the journal.
JOURNAL = 'module(load="imjournal" StateFile="journal" PersistStateInterval="10" Ratelimit.Interval="0"{})\n'
# A node that boots from an image sends its journal from the first line; a running host what comes from now on.
FROM_BOOT, FROM_NOW = JOURNAL.format(""), JOURNAL.format(' IgnorePreviousMessages="on"')
FIELDS = """\
set $.record!@timestamp = exec_template("time");
set $.record!host = {host};
set $.record!rack = "{rack}";
set $.record!boot_id = $!_BOOT_ID;
set $.record!unit = $!_SYSTEMD_UNIT;
set $.record!program = $programname;
set $.record!pid = $procid;
set $.record!severity = $syslogseverity-text;
set $.record!facility = $syslogfacility-text;
set $.record!message = $msg;
set $.id = $uuid;
"""
TEMPLATES = {
    "time": "%timereported:::date-rfc3339%",
    # omkafka keeps lines that it could not send in a file, in which each must end with a newline.
    "line": "%$.record%\\n",
    "bulk": "%$.id% %timegenerated:1:10:date-rfc3339% %$.record%\\n",
    "count": "%msg%\\n",
}
COUNTS = """\
module(load="impstats" interval="{interval_s}" format="json" ruleset="counts")
ruleset(name="counts") {{
  action(name="counts" type="omprog" binary="{binary}" template="count")
}}
"""
BULK = (
    'type="omprog" binary="{binary}" template="bulk" confirmMessages="on" confirmTimeout="60000" useTransactions="on"'
    ' closeTimeout="1000"'
)


@dataclass(frozen=True)
class Commands:
    """The programs with their arguments that rsyslogd starts."""

    counts: str
    bulk: str


def configuration(request: LogsRequest, commands: Commands, work: str = WORK, source: str = FROM_NOW) -> str:
    """Return the file. ``source``: where lines come from."""
    receivers = {}
    if request.kafka:
        receivers["kafka"] = _kafka(request.kafka, work)
    if request.elasticsearch:
        receivers["elasticsearch"] = BULK.format(binary=commands.bulk)
    host = f'"{request.host}"' if request.host else "$$myhostname"
    parts = [
        HEAD,
        f'global(workDirectory="{work}" maxMessageSize="64k")\n',
        'main_queue(queue.type="Direct")\n',
        source,
        *(f'template(name="{name}" type="string" string="{text}")\n' for name, text in TEMPLATES.items()),
        'module(load="omkafka")\n' if request.kafka else "",
        'module(load="omprog")\n',
        COUNTS.format(interval_s=COUNTS_S, binary=commands.counts) if request.counts_file else "",
        *(_ruleset(name, action, request.queue_mib) for name, action in receivers.items()),
        FIELDS.format(host=host, rack=request.rack),
        *(f"call {name}\n" for name in receivers),
    ]
    return "".join(parts)


def _ruleset(name: str, action: str, queue_mib: int) -> str:
    """Return the queue of a receiver and its action, which tries without end."""
    queue = (
        f'queue.type="Disk" queue.filename="{name}" queue.maxDiskSpace="{queue_mib}m" queue.size="100000000"'
        f' queue.maxFileSize="{max(1, min(16, queue_mib // 8))}m" queue.timeoutEnqueue="0"'
        f' queue.checkpointInterval="{CHECKPOINT_LINES}" queue.dequeueBatchSize="{BATCH_LINES}"'
    )
    tries = 'action.resumeRetryCount="-1" action.resumeInterval="5" action.resumeIntervalMax="60"'
    return f'ruleset(name="{name}" {queue}) {{\n  action(name="{name}" {action}\n    {tries})\n}}\n'


def _kafka(kafka: Kafka, work: str) -> str:
    settings = {
        "security.protocol": "ssl" if kafka.ca else "",
        "ssl.ca.location": kafka.ca,
        # librdkafka before 2.0 compares no name by default.
        "ssl.endpoint.identification.algorithm": "https" if kafka.ca else "",
        "ssl.certificate.location": kafka.certificate,
        "ssl.key.location": kafka.key,
        "queue.buffering.max.messages": str(KAFKA_BUFFER),
        "enable.idempotence": "true",
    }
    parameters = ", ".join(f'"{name}={value}"' for name, value in settings.items() if value)
    brokers = ", ".join(f'"{broker}"' for broker in kafka.brokers)
    return (
        f'type="omkafka" template="line" broker=[{brokers}] topic="{kafka.topic}" partitions.auto="on"\n'
        f"    confParam=[{parameters}]\n"
        f'    resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="{work}/kafka.failed"'
    )
