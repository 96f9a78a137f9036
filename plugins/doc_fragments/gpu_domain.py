# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that gpu_domain, gpu_domain_info and gpu_plan share."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of gpu_domain and gpu_domain_info; gpu_plan uses MODULE_IDS and DOMAINS as well."""

    DOCUMENTATION = r"""
options:
  topology:
    description:
      - The host as M(sailloft.fleet.host_topology_info) returned it.
      - If it is left out, the host that the module runs on is read.
    type: dict
  uri:
    description: The URI of libvirt on the host that the module runs on.
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
      - For a server with NVSwitches, the physical id of each GPU by its PCI address, as C(nvidia-smi -q) shows it as
        C(GPU Module ID) while the GPUs are bound to the NVIDIA driver. Fabric Manager's partitions are sets of these
        ids.
      - The default is 1 and up in PCI address order, which is not right for every server. The ids matter for virtual
        machines with some of the GPUs, not for one with all.
    type: dict
    default: {}
  gpu_partitions:
    description:
      - For a server with NVSwitches, the partitions that its Fabric Manager lists (C(fmpm -l)), each as its id with the
        physical ids of its GPUs.
      - The default is the table of the board.
    type: dict
    default: {}
  accelerators:
    description:
      - Devices to treat as GPUs on this host, or not, in addition to those that the collection knows, by vendor and
        device in hexadecimal digits, V("1002:744c"), or by vendor, V("1002:*"). V(true) makes it a GPU, V(false) does
        not.
      - Known are NVIDIA's displays and 3D controllers, AMD Instinct, Intel Data Center GPU Max and Flex, Habana Gaudi
        and NEC Vector Engine. Every other display counts as a console.
      - An entry for a device takes precedence over an entry for its vendor. Functions of other classes than display,
        processing accelerator and co-processor are refused if they are named, and ignored by C(*).
    type: dict
    default: {}
"""

    DOMAINS = r"""
options:
  whole_host:
    description:
      - A virtual machine with the whole host, without O(domains). GPUs, NICs, memory, huge pages, NUMA nodes and
        virtual CPUs follow from the topology.
      - It gets all GPUs, and the first virtual function of each NIC that the host does not use (the NIC itself if it
        can have none). Its memory is that of the huge pages, if they take the same part of every NUMA node and at
        least half of it, otherwise seven eighths of all memory. NVMe drives stay with the host.
      - It has C(image) (the path of a qcow2 image on the host, or its C(url) and C(checksum), for a disk as
        O(domains[].disks[].base)) and C(bridge) (of the host); optionally C(ssh_keys) (as
        O(domains[].disks[].ssh_keys)) and C(disk_mib) (204800). It can have every setting of O(domains), which
        replaces what is derived.
      - M(sailloft.fleet.gpu_host) derives the host's settings from the same dictionary.
    type: dict
    version_added: 0.1.0
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
          - Memory in MiB, divided equally among the NUMA nodes of its devices.
          - Required, except to remove the virtual machine.
        type: int
      gpus:
        description: Its GPUs.
        type: dict
        suboptions:
          count:
            description:
              - Number of GPUs, in addition to O(domains[].gpus.addresses). They are chosen so that they are as near to
                each other as possible, and the remaining GPUs stay as useful as possible. A server's console display is
                never chosen.
            type: int
            default: 0
          functions:
            description:
              - Functions that O(domains[].gpus.count) chooses, whole GPUs or virtual functions of GPUs. The host driver
                of the GPUs makes the virtual functions, such as C(gim) for AMD Instinct. A GPU that has virtual
                functions is never given away itself.
              - Virtual functions of NVIDIA GPUs are refused, because they are vGPUs.
            type: str
            choices: [vf, pf]
            default: pf
          addresses:
            description: PCI addresses of the host.
            type: list
            elements: str
            default: []
      nics:
        description: Its NICs, as passed-through PCI functions.
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
        description: Its NVMe drives.
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
          - Virtual CPUs, divided equally among the NUMA nodes of its devices. Where a node has too few for that,
            because a core of its socket is kept for the host, the sockets are equal.
          - The default is the threads of these nodes without O(domains[].host_cores_per_socket) and those of other
            virtual machines.
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
      host_cores_per_socket:
        description:
          - The number of cores of each socket to which no virtual CPU is pinned. They are for the host, QEMU's emulator
            threads and its I/O threads.
          - If a socket has several NUMA nodes (SNC, NPS), each of its nodes in turn gives its first core. If the
            topology does not contain the sockets, each node counts as one.
        type: int
        default: 1
      iothreads:
        description: QEMU's I/O threads; disks are spread over them.
        type: int
        default: 1
      mirror_topology:
        description:
          - Give the guest the host's PCI tree - an expander bus for each root complex, root ports, switches.
          - V(auto) gives a GPU that needs PCIe AtomicOps (AMD) a root port of its own on its expander bus if the host
            has it below a switch, because QEMU completes AtomicOps only there. A note of the plan names the cost. All
            others are placed as on the host.
          - V(true) places all devices as on the host, and such a GPU then has no AtomicOps.
          - V(false) puts each device on its own root port, without a NUMA node, as most tools do. It is for comparison.
        type: str
        choices: [auto, "true", "false"]
        default: auto
      firmware:
        description: V(efi) is OVMF without secure boot, found through QEMU's firmware descriptors; V(bios) is SeaBIOS.
        type: str
        choices: [efi, bios]
        default: efi
      machine:
        description:
          - The version of QEMU's machine q35, which fixes the guest's hardware, as C(virsh capabilities) names it (for
            example C(pc-q35-8.2), C(pc-q35-rhel9.4.0) or C(pc-q35-noble)).
          - V(q35) is the newest version on the host when the virtual machine is defined for the first time. The virtual
            machine keeps this version; a note of the plan says if there is a newer one.
        type: str
        default: q35
      accelerator:
        description:
          - V(auto) is KVM if libvirt offers it, else emulation. A virtual machine with a GPU that QEMU does not emulate
            itself is then refused; V(qemu) asks for emulation.
        type: str
        choices: [auto, kvm, qemu]
        default: auto
      physical_address_bits:
        description:
          - V(passthrough) gives the guest the host's number of physical address bits, a number sets it, and V(off) is
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
          - Give the guest an Intel IOMMU only for interrupt remapping, which lifts the limit of 255 vCPUs.
          - Boot such a guest with C(intel_iommu=off), so that it does not use the IOMMU for DMA.
        type: bool
        default: false
      numa_nodes:
        description:
          - NUMA nodes of the host for which it gets a cell, in addition to those of its devices, or V([all]).
          - GPUs that are chosen by count are then on these nodes.
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
          - It has an effect on GPUs without NVLink. The cliques follow from the host's topology and ACS.
        type: bool
        default: true
      hpet:
        description: Give the guest a High Precision Event Timer, which QEMU emulates.
        type: bool
        default: true
      kvm_dedicated:
        description:
          - Tell the guest's kernel that its virtual CPUs are never preempted, so that it spins for locks instead of
            yielding the CPU.
          - Use it only with O(domains[].pin_cpus), and if the host runs nothing else on these CPUs.
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
        description: >-
          Images or block devices of the host, as virtio disks. The guest boots from the first one that is not
          read-only.
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
            description: Whether the disk is read-only for the guest.
            type: bool
            default: false
          base:
            description: An image on the host. If the disk does not exist, it is created as an overlay of this image.
            type: str
          base_url:
            description:
              - The URL (http, https) from which the host downloads O(domains[].disks[].base) if it does not exist and
                the disk has to be created. An existing base is never changed.
            type: str
            version_added: 0.1.0
          base_checksum:
            description: The checksum of that file, V(sha256:DIGITS) or V(sha512:DIGITS).
            type: str
            version_added: 0.1.0
          ssh_keys:
            description:
              - Public SSH keys. If the disk does not exist, it is made as a disk of cloud-init's data source NoCloud.
                At its first boot, the guest gets the virtual machine's name, DHCP on its first interface, and these
                keys for root.
              - For a disk with O(domains[].disks[].format=raw) and O(domains[].disks[].read_only). Needs C(xorrisofs)
                on the host.
            type: list
            elements: str
            default: []
            version_added: 0.1.0
          base_format:
            description: The format of that image.
            type: str
            choices: [qcow2, raw]
            default: qcow2
          size_mib:
            description: The size of a new disk; V(0) is the size of its base.
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
              - The I/O mode of QEMU. V(auto) is libvirt's default for a file and V(native) for a block device.
                V(native) needs O(domains[].disks[].cache) V(none) or V(directsync).
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
            description: Its MAC. The default is derived from the virtual machine's name.
            type: str
          queues:
            description: Its queue pairs. With several, as many virtual CPUs can send and receive in parallel.
            type: int
            default: 1
      boot:
        description: A kernel to boot instead of the disk's boot loader.
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
          - The file on the host for the guest's serial console.
          - The default is C(/var/log/libvirt/qemu/NAME-console.log).
        type: str
      autostart:
        description: Start it when the host boots.
        type: bool
        default: true
"""
