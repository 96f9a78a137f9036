# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A GPU node made of files: 224 processors, 8 GPUs, 10 RDMA ports and 10 disks, whose counters move with the time.

The real node exporter, our program for RDMA ports and our verdict read them. Only what they ask of devices themselves
is written here as text: the statistics of ethtool, whose names are those of mlx5, and dcgm-exporter's answer, in its
form and with our list of counters.
"""

from __future__ import annotations

import random
import re
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition
from ansible_collections.sailloft.fleet.plugins.module_utils.health.verdict import prometheus, verdict
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.dcgm import FIELDS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host import node, rdma

CPUS, CORES, GPUS, PORTS, DISKS = 224, 112, 8, 10, 10
NIC = [f"eth{number}" for number in range(PORTS)]
# Files of this machine; large numbers of the first ones are moved.
COPIED = ("meminfo", "vmstat", "net/netstat", "net/snmp", "net/sockstat", "loadavg", "mounts", "1/mounts", "uptime")
COPIED_ONCE = (
    "sys/fs/file-nr",
    "sys/kernel/random/entropy_avail",
    "sys/kernel/random/poolsize",
    "net/snmp6",
    "net/arp",
)
LARGE = re.compile(r"\b\d{5,}\b")
CORE = {
    **{f"cpufreq/{of}_{name}_freq": "3000000" for of in ("cpuinfo", "scaling") for name in ("min", "max", "cur")},
    "cpufreq/scaling_governor": "performance",
    "cpufreq/scaling_available_governors": "performance powersave",
    "cpufreq/scaling_driver": "intel_pstate",
    "cpufreq/scaling_setspeed": "<unsupported>",
    "cpufreq/related_cpus": "0",
    "thermal_throttle/core_throttle_count": "0",
    "thermal_throttle/package_throttle_count": "0",
}
NETWORK_DEVICE = {
    **dict.fromkeys(("carrier", "carrier_changes", "carrier_down_count", "carrier_up_count", "ifindex", "iflink"), "1"),
    **dict.fromkeys(("mtu", "dormant", "flags", "speed", "tx_queue_len", "type", "addr_assign_type", "dev_id"), "1"),
    **dict.fromkeys(("name_assign_type", "link_mode", "netdev_group"), "1"),
    "operstate": "up",
    "duplex": "full",
    "address": "02:00:00:00:00:01",
    "ifalias": "",
}
PORT = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
SENSOR = {"max": "88000", "crit": "98000", "crit_alarm": "0"}
SENSORS = range(1, CORES // 2 + 2)  # of each of two packages
# Growth a second: of a processor's user, nice, system, idle, iowait, irq, softirq, steal, guest and guest_nice; of
# bytes and packets of a network device; of a disk's counters; of a port's.
CPU_RATES = (40, 0, 12, 45, 1, 0, 2, 0, 0, 0)
NETWORK_RATES = (2e9, 9e5)
DISK_RATES = (40, 1, 9e3, 30, 60, 9, 2e4, 90, 0, 60, 120)
PORT_RATES = {
    **dict.fromkeys(("port_rcv_data", "port_xmit_data"), 1e9),
    **dict.fromkeys(("port_rcv_packets", "port_xmit_packets", "unicast_rcv_packets", "unicast_xmit_packets"), 9e5),
    "port_xmit_wait": 40,
}
# Values of a node with 8 GPUs and 10 ports that a round of the health check measures: an estimate.
HEALTH_VALUES = {"gpu": ([f"0000:{number:02x}:00.0" for number in range(GPUS)], 20), "port": (NIC, 8)}
OF_PRIORITY = ("bytes", "packets", "pause", "pause_duration")
STATISTICS = [
    *(f"rx_prio{prio}_{name}" for prio in range(8) for name in (*OF_PRIORITY, "discards")),
    *(f"tx_prio{prio}_{name}" for prio in range(8) for name in OF_PRIORITY),
    *("rx_pause_ctrl_phy", "tx_pause_ctrl_phy", "rx_global_pause", "rx_global_pause_duration", "tx_global_pause"),
    *("tx_global_pause_duration", "rx_global_pause_transition", "tx_pause_storm_warning_events"),
    *("tx_pause_storm_error_events", "rx_discards_phy", "rx_symbol_err_phy", "rx_crc_errors_phy"),
    *("rx_corrected_bits_phy", "rx_pcs_symbol_err_phy", "rx_out_of_buffer", "link_down_events_phy", "module_unplug"),
    *("module_bus_stuck", "module_high_temp", "module_bad_shorted"),
]
MOVING_STATISTICS = ("prio0_bytes", "prio0_packets", "prio3_bytes", "prio3_packets", "corrected_bits_phy")


class GpuNode:
    """The files of a node below ``folder``, and the answers of its exporters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chance = random.Random(1)
        self.counters: dict[str, float] = {}
        self.copied = {name: text for name in (*COPIED, *COPIED_ONCE) if (text := _text(Path("/proc", name)))}
        self._write("proc", self.copied)
        self._write_fixed()
        self.textfiles = folder / "textfiles"
        self.textfiles.mkdir()

    def _write(self, place: str, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            path = self.folder / place / name
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True)
            path.write_text(f"{text.rstrip()}\n", encoding="utf-8")

    def _grown(self, name: str, seconds: float, rate: float) -> int:
        """Return a counter that grew by about ``rate`` a second."""
        grown = rate * seconds * self.chance.uniform(0.5, 1.5)
        self.counters[name] = self.counters.get(name, rate * 1e5) + grown
        return int(self.counters[name])

    def _grown_row(self, name: str, seconds: float, rates: Iterable[float]) -> str:
        return " ".join(str(self._grown(f"{name} {number}", seconds, rate)) for number, rate in enumerate(rates))

    def _write_fixed(self) -> None:
        for cpu in range(CPUS):
            place = {"core_id": str(cpu % CORES % 56), "physical_package_id": str(cpu % CORES // 56)}
            topology = {f"topology/{name}": text for name, text in place.items()}
            self._write(f"sys/devices/system/cpu/cpu{cpu}", {**CORE, **topology})
        # Of collectors that are off: only the number of their series counts.
        schedule = ["version 15", "timestamp 4300000000", *(f"cpu{cpu} 0 0 0 0 0 0 9 9 9" for cpu in range(CPUS))]
        soft = [" ".join(["00000000"] * 13)] * CPUS
        self._write("proc", {"schedstat": "\n".join(schedule), "net/softnet_stat": "\n".join(soft)})
        for number, device in enumerate(NIC):
            self._write(f"sys/class/net/{device}", NETWORK_DEVICE)
            counters = {f"counters/{name}": "0" for name, _metric, _factor in rdma.COUNTERS}
            self._write(f"sys/class/infiniband/mlx5_{number}/ports/1", {**PORT, **counters})
        for package in range(2):
            texts = {f"temp{sensor}_{name}": text for sensor in SENSORS for name, text in SENSOR.items()}
            labels = {f"temp{sensor}_label": f"Core {sensor}" for sensor in SENSORS}
            self._write(f"sys/class/hwmon/hwmon{package}", {"name": f"coretemp{package}", **texts, **labels})
        for disk in range(DISKS):
            self._write(f"sys/class/hwmon/hwmon{2 + disk}", {"name": f"nvme{disk}"})
            names = ("firmware_rev", "model", "serial", "state", "cntlid")
            self._write(f"sys/class/nvme/nvme{disk}", {name: f"{name}{disk}" for name in names})

    def move(self, seconds: float) -> None:
        """Let the time pass."""
        self._move_proc(seconds)
        chance = self.chance
        for package in range(2):
            texts = {f"temp{sensor}_input": f"{chance.randint(55, 65)}000" for sensor in SENSORS}
            self._write(f"sys/class/hwmon/hwmon{package}", texts)
        for disk in range(DISKS):
            self._write(f"sys/class/hwmon/hwmon{2 + disk}", {"temp1_input": f"{chance.randint(40, 43)}850"})
        for number in range(PORTS):
            texts = {name: str(self._grown(f"port{number} {name}", seconds, rate)) for name, rate in PORT_RATES.items()}
            self._write(f"sys/class/infiniband/mlx5_{number}/ports/1/counters", texts)
        self._write_textfiles()

    def _move_proc(self, seconds: float) -> None:
        cpus = [self._grown_row(f"cpu{cpu}", seconds, CPU_RATES) for cpu in range(CPUS)]
        sums = [sum(map(int, kind)) for kind in zip(*(row.split() for row in cpus))]
        counted = {"intr": 9e4, "ctxt": 1.5e5, "processes": 20}
        stat = [
            f"cpu  {' '.join(map(str, sums))}",
            *(f"cpu{cpu} {row}" for cpu, row in enumerate(cpus)),
            *(f"{name} {self._grown(name, seconds, rate)}" for name, rate in counted.items()),
            *("btime 1795000000", f"procs_running {self.chance.randint(1, 200)}", "procs_blocked 0"),
        ]
        ways = {(nic, way): self._grown_row(f"{nic} {way}", seconds, NETWORK_RATES) for nic in NIC for way in "rt"}
        network = [
            "Inter-|   Receive",
            " face |bytes packets errs drop fifo frame compressed multicast|bytes packets",
            *(f"{nic}: {ways[nic, 'r']} 0 0 0 0 0 9 {ways[nic, 't']} 0 0 0 0 0 0" for nic in NIC),
        ]
        disks = [
            f"259 {disk} nvme{disk}n1 {self._grown_row(f'disk{disk}', seconds, DISK_RATES)} 0 0 0 0 0 0"
            for disk in range(DISKS)
        ]
        for name in set(COPIED) & set(self.copied):
            self.copied[name] = LARGE.sub(self._moved, self.copied[name])
        files = {"stat": "\n".join(stat), "net/dev": "\n".join(network), "diskstats": "\n".join(disks)}
        self._write("proc", {**self.copied, **files})

    def _moved(self, number: re.Match[str]) -> str:
        return str(int(number[0]) + self.chance.randint(0, 900))

    def _write_textfiles(self) -> None:
        now = state.moment()
        values = {
            f"{kind}_value_{number}": {
                f"{kind} {place}": float(self.chance.randint(40, 60)) if number < 4 else 16.0 for place in places
            }
            for kind, (places, checks) in HEALTH_VALUES.items()
            for number in range(checks)
        }
        round_ = state.State("n1", state.Round(1, now, 1.0, 60.0), Condition(), {}, values)
        texts = {"health": prometheus(verdict(round_, now)), "rdma": rdma.metrics(str(self.folder))}
        self._write("textfiles", {f"sailloft_{name}.prom": text for name, text in texts.items()})

    def exporter(self, port: int, collectors: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the real node exporter on the files."""
        command = [
            node.NODE_EXPORTER,
            f"--web.listen-address=127.0.0.1:{port}",
            f"--collector.textfile.directory={self.textfiles}",
            f"--path.procfs={self.folder}/proc",
            f"--path.sysfs={self.folder}/sys",
            "--no-collector.netdev.netlink",
            *collectors,
        ]
        with open(self.folder / "log", "wb") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def node_answer(self, port: int, seconds: float) -> str:
        """Return the answer of node exporter with the statistics of ethtool; ``seconds`` since the last one."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return str(answer.read().decode()) + "".join(self._statistics(seconds))

    def _statistics(self, seconds: float) -> Iterator[str]:
        for name in STATISTICS:
            moves = name.endswith(MOVING_STATISTICS)
            metric = re.sub("^rx", "received", re.sub("^tx", "transmitted", name))
            for device in NIC:
                value = self._grown(f"{device} {name}", seconds, 9e5) if moves else 0
                yield f'node_ethtool_{metric}{{device="{device}"}} {value}\n'

    def dcgm_answer(self) -> str:
        """Return an answer of dcgm-exporter."""
        chance = self.chance
        moving = {
            "GPU_TEMP": lambda: chance.randint(58, 61),
            "MEMORY_TEMP": lambda: chance.randint(70, 73),
            "POWER_USAGE": lambda: f"{chance.uniform(560, 700):.3f}",
            "GPU_UTIL": lambda: chance.randint(92, 100),
            "FB_USED": lambda: chance.choice((71212, 71212, 71212, 71340)),
            "SM_CLOCK": lambda: chance.choice((1980, 1965, 1950)),
        }
        lines = []
        for name, kind, text in FIELDS:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            for gpu in range(GPUS):
                labels = (
                    f'gpu="{gpu}",UUID="GPU-7a4ce8a4-0000-4000-8000-00000000000{gpu}",pci_bus_id="00000000:{gpu:02X}:00.0",'
                    f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",'
                    'DCGM_FI_DRIVER_VERSION="550.163.01"'
                )
                value = moving.get(name.removeprefix("DCGM_FI_DEV_"), lambda: 0)()
                lines.append(f"{name}{{{labels}}} {value}")
        return "\n".join(lines) + "\n"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
