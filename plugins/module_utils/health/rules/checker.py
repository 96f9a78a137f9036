# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules of the checker itself: what it could not measure, and devices that are not there. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import CONFIGURATION, Rule
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.make import event, flag

DEVICE_MISSING = "device_missing"
NOT_MEASURED_CHECK, READER_FAILED = "not_measured", "reader_failed"
READER_HANGS, STORAGE_HANGS = "reader_hangs", "storage_hangs"
STATE_UNREADABLE, EXPECTED_UNREADABLE = "state_unreadable", "expected_unreadable"
# Of a node without a disk, whose boot servers keep a copy of its state.
STATE_BEFORE_BOOT, COPY_NOT_KEPT = "state_before_boot", "copy_not_kept"
# A node with one of these faults is not known to be healthy.
UNKNOWN = (NOT_MEASURED_CHECK, READER_FAILED, EXPECTED_UNREADABLE, STATE_BEFORE_BOOT)
SOURCE = "the health check itself"

RULES = (
    flag(DEVICE_MISSING, "a planned device is missing", "drain", "the node's plan", "device-missing"),
    flag(NOT_MEASURED_CHECK, "not measured for three rounds", "watch", SOURCE, "not-measured", CONFIGURATION),
    flag(READER_FAILED, "a reader measured nothing for three rounds", "watch", SOURCE, "not-measured", CONFIGURATION),
    # A process that cannot be killed waits in the kernel, mostly for a device, and only a reboot ends it.
    flag(READER_HANGS, "a reader's process cannot be killed", "reboot", SOURCE, "reader-hangs", CONFIGURATION),
    # No reboot brings a lost file server back. The mounts that must be there have faults of their own.
    flag(
        STORAGE_HANGS,
        "a process that asked the file systems cannot be killed",
        "watch",
        SOURCE,
        "file-system",
        CONFIGURATION,
    ),
    # Faults of before are unknown, and so is a person's drain: only a person can say that the node is fit.
    event(STATE_UNREADABLE, "the stored state could not be read", "person", SOURCE, "state-unreadable", CONFIGURATION),
    flag(
        EXPECTED_UNREADABLE,
        "what the node must have could not be read",
        "configure",
        SOURCE,
        "expected-unreadable",
        CONFIGURATION,
    ),
    flag(
        STATE_BEFORE_BOOT,
        "faults and drains of before the boot are not known",
        "watch",
        SOURCE,
        "state-before-boot",
        CONFIGURATION,
    ),
    flag(
        COPY_NOT_KEPT,
        "no boot server keeps the state: the next boot forgets it",
        "watch",
        SOURCE,
        "state-before-boot",
        CONFIGURATION,
    ),
)


def hanging(reader: str) -> str:
    """Return the check that fails while a process of a reader cannot be killed."""
    return STORAGE_HANGS if reader == "file_systems" else READER_HANGS


def without_rule(check: str) -> Rule:
    """Return the rule of a check that the table does not have, of a log's line for example: a person looks at it."""
    return event(check, "a check without a rule", "watch", SOURCE, "not-measured", CONFIGURATION)
