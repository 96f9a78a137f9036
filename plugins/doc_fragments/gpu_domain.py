# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that gpu_domain, gpu_domain_info and gpu_plan share."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of the first two; MODULE_IDS and DOMAINS are gpu_plan's, too."""

    DOCUMENTATION = r"""
options:
  topology:
    description:
      - The host as M(sailloft.fleet.host_topology_info) returned it.
      - Where it is left out, the host that the module runs on is read.
    type: dict
  uri:
    description: The libvirt to talk to, on the host that the module runs on.
    type: str
    default: qemu:///system
requirements:
  - libvirt-python (Debian package python3-libvirt) on the host
author:
  - The Sailloft maintainers (@sailloft)
"""

    MODULE_IDS = r"""
options:
  gpu_module_ids:
    description:
      - Of a server with NVSwitches, the physical id of each GPU by its PCI address, as C(nvidia-smi -q) tells it under
        C(GPU Module ID) while the NVIDIA driver has the GPUs. Fabric Manager's partitions are made of these ids.
      - Left out, they are taken to be 1 and up in PCI address order, which is not so on every server. It matters for
        virtual machines of some of the GPUs, not for one of all.
    type: dict
    default: {}
  accelerators:
    description:
      - Devices to treat as GPUs on this host, or not, in addition to those that the collection knows, by vendor and
        device in hexadecimal digits, V("1002:744c"), or by vendor, V("1002:*"). V(true) makes it a GPU, V(false) none.
      - Known are NVIDIA's displays and 3D controllers, AMD Instinct, Intel Data Center GPU Max and Flex, Habana Gaudi
        and NEC Vector Engine. Every other display is taken for a console.
      - An entry for a device takes precedence over an entry for its vendor. Functions of other classes than display,
        processing accelerator and co-processor are refused where they are named, and left alone by C(*).
    type: dict
    default: {}
"""

    # The virtual machines themselves; "required" differs between the modules, so this is the suboptions' part only.
    DOMAINS = r"""
options:
  domains:
    description: The virtual machines of this host, planned together.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - The virtual machine's name. Its uuid and its MACs are derived from it.
        type: str
        required: true
      memory_mib:
        description:
          - Memory in MiB, in equal parts on every NUMA node that its devices are on.
          - Needed for everything but removing it.
        type: int
      gpus:
        description: Which GPUs it gets.
        type: dict
        suboptions:
          count:
            description:
              - Number of GPUs, in addition to O(domains[].gpus.addresses). They are chosen so that they are as near to
                each other,
                and what stays free is as useful, as can be. A server's console display is never chosen.
            type: int
            default: 0
          addresses:
            description: PCI addresses of the host.
            type: list
            elements: str
            default: []
      nics:
        description: Which NICs it gets as passed-through PCI functions.
        type: dict
        suboptions:
          per_gpu:
            description: Number of NICs for each GPU, the nearest ones, in addition to O(domains[].nics.addresses).
            type: int
            default: 0
          functions:
            description: Functions that O(domains[].nics.per_gpu) chooses, virtual ones or whole ports.
            type: str
            choices: [vf, pf]
            default: vf
          addresses:
            description: PCI addresses of the host.
            type: list
            elements: str
            default: []
      nvme:
        description: Which NVMe drives it gets.
        type: dict
        suboptions:
          count:
            description: Number of NVMe drives, the nearest to its GPUs, in addition to O(domains[].nvme.addresses).
            type: int
            default: 0
          addresses:
            description: PCI addresses of the host.
            type: list
            elements: str
            default: []
      vcpus:
        description:
          - Virtual CPUs, in equal parts on every NUMA node that its devices are on.
          - Left out, it is what these nodes have left after O(domains[].host_cores_per_node) and other virtual
            machines.
        type: int
      huge_page_mib:
        description: Size of the huge pages that back its memory; V(0) for ordinary memory.
        type: int
        default: 1024
      lock_memory:
        description: Keep all of QEMU's memory from being swapped out.
        type: bool
        default: true
      memory_threads:
        description:
          - Threads of QEMU that allocate its memory before it starts. V(0) is QEMU's default, one thread.
          - Needs libvirt 8.2.
        type: int
        default: 0
      strict_memory:
        description: Bind the memory of each guest NUMA cell to its host node.
        type: bool
        default: true
      pin_cpus:
        description: Pin each virtual CPU to one host CPU, hardware threads of one core beside each other.
        type: bool
        default: true
      host_cores_per_node:
        description:
          - Cores, the first of each node, that no virtual CPU is pinned to. The host, QEMU's emulator and its I/O
            threads have them.
        type: int
        default: 1
      iothreads:
        description: QEMU's I/O threads; disks are spread over them.
        type: int
        default: 1
      mirror_topology:
        description:
          - Give the guest the host's PCI tree - an expander bus for each root complex, root ports, switches.
          - V(false) puts each device on a root port of its own, without a NUMA node, as most tools do. For comparison.
        type: bool
        default: true
      firmware:
        description: V(efi) is OVMF without secure boot, found through QEMU's firmware descriptors; V(bios) is SeaBIOS.
        type: str
        choices: [efi, bios]
        default: efi
      machine:
        description:
          - The version of QEMU's machine q35, which fixes the guest's hardware, as C(virsh capabilities) names it (for
            example C(pc-q35-8.2), C(pc-q35-rhel9.4.0) or C(pc-q35-noble)).
          - V(q35) is the newest that the host has when the virtual machine is defined for the first time. That version
            stays while the virtual machine exists; a note of the plan says that there is a newer one.
        type: str
        default: q35
      accelerator:
        description: V(auto) is KVM where libvirt offers it, else emulation.
        type: str
        choices: [auto, kvm, qemu]
        default: auto
      physical_address_bits:
        description:
          - V(passthrough) gives the guest the host's number of physical address bits, a number as many, V(off)
            QEMU's default of 40.
          - V(auto) is V(passthrough) under KVM and V(off) under emulation, which cannot pass it through.
        type: str
        default: auto
      guest_iommu:
        description: Give the guest an Intel IOMMU, with caching mode so that passed-through devices work behind it.
        type: bool
        default: false
      interrupt_remapping:
        description:
          - Give the guest an Intel IOMMU that remaps interrupts, which lifts the limit of 255 vCPUs, and nothing else.
          - Boot such a guest with C(intel_iommu=off), so that it does not translate DMA with it.
        type: bool
        default: false
      numa_nodes:
        description:
          - NUMA nodes of the host that it gets a cell on, beside those of its devices, or V([all]).
          - GPUs that are chosen by count are then of these nodes.
        type: list
        elements: str
        default: []
      ats:
        description:
          - Address Translation Services of the virtio devices. They have an effect with O(domains[].guest_iommu) only.
          - ATS of a passed-through device is set in its firmware and the host's ACS, not here.
        type: bool
        default: true
      gpudirect_cliques:
        description:
          - Whether NVIDIA GPUs that reach each other by PCIe on the host may do so in the guest (GPUDirect P2P
            cliques).
          - It has an effect on GPUs without NVLink; the host's topology and ACS decide which they are.
        type: bool
        default: true
      hpet:
        description: Give the guest a High Precision Event Timer, which QEMU emulates.
        type: bool
        default: true
      kvm_dedicated:
        description:
          - Tell the guest's kernel that its virtual CPUs are never preempted, so that it spins for locks instead of
            giving its CPU away.
          - It is true only with O(domains[].pin_cpus) and where the host has no work for these CPUs.
        type: bool
        default: false
      rom_bar:
        description: Show the guest the option ROMs of passed-through devices. Firmware runs them at boot.
        type: bool
        default: true
      rng:
        description: Give the guest a virtio random number generator, fed by the host's C(/dev/urandom).
        type: bool
        default: false
      mmio_window_mib:
        description: The guest's 64-bit window for memory-mapped I/O, a power of two; V(0) computes it from the
          devices' BARs.
        type: int
        default: 0
      disks:
        description: Images or block devices of the host, as virtio disks. The first that is not read-only is booted
          from.
        type: list
        elements: dict
        default: []
        suboptions:
          path:
            description: The file, or the device below /dev.
            type: str
            required: true
          format:
            description: The format of the image.
            type: str
            choices: [qcow2, raw]
            default: qcow2
          read_only:
            description: Make it read-only for the guest.
            type: bool
            default: false
          base:
            description: An image on the host. Where the disk is missing, it is made as an overlay of this one.
            type: str
          base_format:
            description: The format of that image.
            type: str
            choices: [qcow2, raw]
            default: qcow2
          size_mib:
            description: The size of a disk that is made; V(0) is that of its base.
            type: int
            default: 0
          cache:
            description:
              - The host's cache, as libvirt names it. V(auto) is libvirt's default for a file and V(none) for a block
                device.
            type: str
            choices: [auto, none, writeback, writethrough, directsync, unsafe]
            default: auto
          io:
            description:
              - QEMU's way of reading and writing. V(auto) is libvirt's default for a file and V(native) for a block
                device. V(native) needs O(domains[].disks[].cache) V(none) or V(directsync).
            type: str
            choices: [auto, native, threads, io_uring]
            default: auto
      interfaces:
        description: Virtio network interfaces, for management.
        type: list
        elements: dict
        default: []
        suboptions:
          type:
            description: A libvirt network, a bridge of the host, or QEMU's user networking.
            type: str
            choices: [network, bridge, user]
            default: network
          source:
            description: Name of the network or bridge.
            type: str
          mac:
            description: Its MAC; left out, it is derived from the virtual machine's name.
            type: str
          queues:
            description: Its queue pairs; with several, as many virtual CPUs send and receive at once.
            type: int
            default: 1
      boot:
        description: Boot this kernel instead of the disk's boot loader.
        type: dict
        suboptions:
          kernel:
            description: Path on the host.
            type: str
            required: true
          initrd:
            description: Path on the host.
            type: str
          arguments:
            description: The kernel's command line.
            type: str
      console_log:
        description:
          - File on the host that the guest's serial console is written to.
          - Left out, it is C(/var/log/libvirt/qemu/NAME-console.log).
        type: str
      autostart:
        description: Start it when the host boots.
        type: bool
        default: true
"""
