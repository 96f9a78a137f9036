#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_plan
short_description: Plan the files of a Slurm cluster from the inventory, recordings and the blueprint
version_added: 0.1.0
description:
  - Makes C(slurm.conf), C(gres.conf), C(cgroup.conf), C(topology.conf) or (since 25.05) C(topology.yaml), and with
    O(accounting) C(slurmdbd.conf) without its password. It runs on the controller, once for all nodes.
  - Processors, memory, GPUs and NICs of a node are those of its recording (C(record.yml)). C(Cores) are the logical
    numbers of all cores of the device's socket. A node without a recording is one CPU without GPUs, see RV(notes).
  - GPUs are C(/dev/nvidiaN) in PCI order. M(sailloft.fleet.slurm_service) compares this with the driver on each node.
  - No node has a C(State) in C(slurm.conf); Slurm would drain it again at each reconfiguration.
  - With O(scheduler=lsf) the same cluster as files of IBM Spectrum LSF, which no LSF has read yet.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  scheduler:
    description:
      - V(lsf) makes C(lsf.shared), C(lsf.cluster.NAME), C(lsb.hosts), the C(elim) that reports the health of a node,
        and lines for C(lsf.conf) and C(lsb.params). It takes only O(cluster), O(controllers) and O(partitions).
    type: str
    choices: [slurm, lsf]
    default: slurm
  cluster:
    description: The name of the cluster. Slurm refuses to start with the state of another name.
    type: str
    default: cluster
  version:
    description: The release of Slurm on all hosts, such as V(22.05).
    type: str
    default: "22.05"
  controllers:
    description: The hosts of slurmctld, the primary first. Standbys follow, and need a shared O(state_directory).
    type: list
    elements: str
    required: true
  partitions:
    description:
      - The partitions in order. Each has C(name), C(groups) of the inventory, and optionally C(default) (V(false)),
        C(max_time), and further C(options) of its line.
    type: list
    elements: dict
    required: true
  accounting:
    description: >-
      C(host) of slurmdbd, and optionally C(database) (V(slurm_acct_db)), C(storage_host) (V(localhost)) and C(user)
      (V(slurm)).
    type: dict
  prolog:
    description: A program that slurmd runs before each job. It must not call Slurm's commands.
    type: path
  epilog:
    description: A program that slurmd runs after each job.
    type: path
  reimage_command:
    description:
      - The command, one word per item, that C(scontrol reboot) starts on the controller, as the user slurm, with the
        names of the nodes, joined by commas, as its last argument, such as C(playbooks/reimage.yml -l) over SSH.
      - Without it, nodes run C(/usr/sbin/reboot). One whose firmware boots from the network first gets its image again.
    type: list
    elements: str
  state_directory:
    description: The directory of slurmctld's state.
    type: path
    default: /var/lib/slurm/slurmctld
  container_directory:
    description: >-
      The directory of the nodes in which each job's containers are. Prolog and Epilog are then those that
      M(sailloft.fleet.slurm_service) writes on nodes, which run O(prolog) and O(epilog).
    type: str
  options:
    description: Further settings of C(slurm.conf). Those that the plan makes are refused.
    type: dict
  checkpoint:
    description: >-
      The size C(gb) and measured bandwidth C(write_gb_s) of the checkpoints of a job on all nodes of a partition, and
      optionally C(failures) and C(node_days) in which they were counted, or C(published), as of the filter
      P(sailloft.fleet.checkpoint_interval#filter). The summary then says how often each should write one.
    type: dict
  blueprint:
    description: The file of the blueprint, for the topology and the spares.
    type: path
  recordings:
    description: The directory of the nodes' recordings, C(NAME.json).
    type: path
  path:
    description: Directory for the files, created if it is missing. Without it, nothing is written.
    type: path
"""

EXAMPLES = r"""
- name: Plan the cluster
  sailloft.fleet.slurm_plan:
    controllers: [login-1]
    partitions:
      - {name: gpu, groups: [gpu_nodes], default: true}
    blueprint: inventories/blue_vela/blueprint.yml
    recordings: recordings
    path: plans/slurm
"""

RETURN = r"""
summary:
  description: Nodes, partitions, spares and fabrics as lines of text.
  returned: success
  type: list
  elements: str
notes:
  description: What is not known of nodes, as lines.
  returned: success
  type: list
  elements: str
  sample: ["gpu[07-10]: there is no recording of it: Slurm takes it for one CPU without GPUs"]
files:
  description: The texts of the files by name.
  returned: success
  type: dict
nodes:
  description: >-
    By node C(sockets), C(cores_per_socket), C(threads_per_core), C(memory_mib), C(gpus) (PCI addresses in the order of
    C(/dev/nvidiaN)) and the number of C(nics); empty where it is not known.
  returned: success
  type: dict
spares:
  description: The nodes that are spares.
  returned: success
  type: list
  elements: str
restart_key:
  description: Another text after a change for which each slurmd must be restarted.
  returned: success
  type: str
written:
  description: The files that were missing or different.
  returned: success
  type: list
  elements: str
"""
