# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Alerts of what playbooks/fleet.yml has read: images, virtual machines, proofs, boot servers. Pure.

The health of nodes and the fabric's drift have series, and alerts, of their own.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.series import at
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import (
    GONE,
    INFO,
    NETWORK,
    PART,
    PLATFORM,
    WARNING,
    Alert,
    Case,
)

CONTROL = f'job="node",{at("control", role="monitoring")}'
CHANNEL = f'channel="stable",{CONTROL}'
# node_exporter reads the file each minute; a look is an hour apart.
FILE_M = 1

ALERTS = (
    Alert(
        "FleetDiffers",
        'sailloft_fleet_state{kind!~"health|fabric"} >= 3',
        minutes=FILE_M,
        severity=WARNING,
        owner=PLATFORM,
        level=PART,
        summary="{{ $labels.device }}: its {{ $labels.kind }} is not as the inventory says",
        cause="a change by hand, a boot of another image, a virtual machine that does not run",
        step="read fleet.html, then run the playbook of this kind",
        runbook="fleet-differs",
        place=("device", "kind"),
        cases=(
            Case({f'sailloft_fleet_state{{device="n1",kind="image",{CONTROL}}}': (0, 3)}),
            Case({f'sailloft_fleet_state{{device="n1",kind="acceptance",{CONTROL}}}': (0, 4)}),
        ),
    ),
    Alert(
        "FleetUnknown",
        "count by (instance, kind) (sailloft_fleet_state == 2) > 0",
        minutes=FILE_M,
        severity=INFO,
        owner=PLATFORM,
        level=PART,
        summary="the {{ $labels.kind }} of {{ $value }} hosts is not known",
        cause="hosts that do not answer, or a reading that is older than a day",
        step="playbooks/fleet.yml -e fleet_refresh=true",
        runbook="fleet-differs",
        place=("instance", "kind"),
        cases=(Case({f'sailloft_fleet_state{{device="n1",kind="image",{CONTROL}}}': (0, 2)}),),
    ),
    Alert(
        "FabricProofFails",
        'sailloft_fleet_proof_state{proof!="fabric_drift"} >= 2',
        minutes=FILE_M,
        severity=WARNING,
        owner=NETWORK,
        level=PART,
        summary="the proof {{ $labels.proof }} does not hold, or is old",
        cause="a cable, a link, or nobody has run its playbook for a day",
        step="read its page in proofs, then run its playbook again",
        runbook="fleet-differs",
        place=("proof",),
        cases=(Case({f'sailloft_fleet_proof_state{{proof="cabling",{CONTROL}}}': (0, 3)}),),
    ),
    Alert(
        "BootStoreFault",
        "sailloft_boot_server_read == 0 or sailloft_boot_server_faulty_images > 0",
        minutes=FILE_M,
        severity=WARNING,
        owner=PLATFORM,
        level=PART,
        summary="the images of the boot server {{ $labels.device }} are damaged, missing or not read",
        cause="a disk, or a copy that was interrupted",
        step="playbooks/collect_images.yml, then publish the image again",
        runbook="boot-store",
        place=("device",),
        cases=(
            Case({f'sailloft_boot_server_read{{device="boot1",{CONTROL}}}': (1, 0)}),
            Case({f'sailloft_boot_server_faulty_images{{device="boot1",{CONTROL}}}': (0, 1)}),
        ),
    ),
    Alert(
        "BootChannelsDiffer",
        "count by (channel) (count by (channel, digest) (sailloft_boot_server_channel)) > 1",
        minutes=FILE_M,
        severity=WARNING,
        owner=PLATFORM,
        level=PART,
        summary="the boot servers do not name one image for the channel {{ $labels.channel }}",
        cause="a rollout that was interrupted",
        step="promote one image on all of them: playbooks/rollout.yml",
        runbook="boot-store",
        place=("channel",),
        cases=(
            Case(
                {
                    f'sailloft_boot_server_channel{{device="boot1",digest="a",{CHANNEL}}}': (1, 1),
                    f'sailloft_boot_server_channel{{device="boot2",digest="b",{CHANNEL}}}': (GONE, 1),
                }
            ),
        ),
    ),
)
