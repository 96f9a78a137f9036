# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Made-up GPU nodes, and the public key of their archive."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

# Made by gpg 2.2 for these tests (ed25519); its secret key was deleted.
KEY = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawNa2RYJKwYBBAHaRw8BAQdA3DIVs4nkErYTTlHg0xCFN2w76HC25BnSVtqJ
gX51N3q0J1NhaWxsb2Z0IHRlc3RzIDx0ZXN0c0BzYWlsbG9mdC5pbnZhbGlkPoiQ
BBMWCAA4FiEE8pzM4glwSsY3BRVveTVO1ModVQgFAmsDWtkCGwMFCwkIBwIGFQoJ
CAsCBBYCAwECHgECF4AACgkQeTVO1ModVQgccgEA4p+yPbfE1tLKAx8BnuBtnMU5
yFokxypXEVyehbbQEJsBAOuy+hpCxToqeROXoqlzpgkROOgGMW1pyBjklQKrqcoP
=W6oG
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "F29CCCE209704AC63705156F79354ED4CA1D5508"
ARCHIVE = {
    "name": "cuda",
    "url": "https://mirror.example/cuda/debian12/x86_64",
    "key": KEY,
    "fingerprints": [FINGERPRINT],
}
SYSTEMS = {
    "debian12": ("debian", "12", "6.1.0-31-amd64"),
    "debian13": ("debian", "13", "6.12.0-1-amd64"),
    "ubuntu2204": ("ubuntu", "22.04", "5.15.0-130-generic"),
    "ubuntu2404": ("ubuntu", "24.04", "6.8.0-60-generic"),
    "ubuntu2604": ("ubuntu", "26.04", "7.0.0-10-generic"),
    "rhel9": ("rhel", "9.6", "5.14.0-570.el9.x86_64"),
    "rhel10": ("rhel", "10.2", "6.12.0-200.el10.x86_64"),
    "rocky8": ("rocky", "8.10", "4.18.0-553.el8_10.x86_64"),
}


class Node(System):
    """A node in a directory: its files are real, and its commands answer from dictionaries."""

    def __init__(
        self,
        root: Path,
        system: str = "debian12",
        nvswitches: int = 0,
        gpus: int = 8,
        secure_boot: bool = False,
        device: str = "",
    ):
        super().__init__(str(root))
        name, version, self.kernel = SYSTEMS[system]
        self.packages: dict[str, str] = {}
        self.modules: dict[str, str] = {}
        self.answers: dict[tuple[str, ...], str] = {}
        self.ran: list[list[str]] = []
        self.write("/etc/os-release", f'PRETTY_NAME="x"\nID={name}\nVERSION_ID="{version}"\n')
        self.write("/proc/sys/kernel/osrelease", self.kernel + "\n")
        for number in range(gpus + nvswitches):
            place = f"/sys/bus/pci/devices/0000:{number + 1:02x}:00.0"
            self.write(f"{place}/vendor", "0x10de\n")
            self.write(f"{place}/class", "0x030200\n" if number < gpus else "0x068000\n")
            if device and number < gpus:
                self.write(f"{place}/device", f"{device}\n")
        if secure_boot:
            name = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
            path = Path(self.path(f"/sys/firmware/efi/efivars/{name}"))
            path.parent.mkdir(parents=True)
            path.write_bytes(b"\x06\0\0\0\x01")

    def write(self, path: str, text: str) -> None:
        """Write a file, and make its directories."""
        there = Path(self.path(path))
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text)

    def machine(self) -> str:
        """Return the architecture."""
        return "x86_64"

    def run(self, argv: list[str], stdin: str | None = None, timeout_s: float | None = None) -> str:
        """Answer as the command does."""
        self.ran.append(argv)
        if argv[0] == "dpkg-query":
            return "".join(f"installed {name} {version}\n" for name, version in self.packages.items())
        if argv[0] == "rpm":
            return "".join(f"installed {name} (none):{version}\n" for name, version in self.packages.items())
        if argv[0] == "modinfo":
            if argv[2] not in self.modules:
                raise HostError("modinfo: ERROR: Module nvidia not found.")
            return self.modules[argv[2]] + "\n"
        try:
            return self.answers[tuple(argv)]
        except KeyError:
            raise HostError(f"{argv[0]} is not installed on this host", "install its package first") from None
