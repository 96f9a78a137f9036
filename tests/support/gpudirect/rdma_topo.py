# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's rdma_topo, from Debian 14's rdma-core, and a host in the form that it reads.

The package is downloaded and unpacked to a cache; nothing is installed, and no part of the tool is in this repository.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import io
import json
import shutil
import subprocess
import sys
import types
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from forky import apt_options

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

CACHE = Path(__file__).parents[3] / ".cache" / "rdma_topo"


def tool() -> Path:
    """Return the path of the program, which is downloaded once."""
    program = CACHE / "unpacked" / "usr/sbin/rdma_topo"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _download()
    return program


def _download() -> None:
    unfinished = CACHE / "unfinished"
    options = apt_options(unfinished)
    for command in (["update"], ["download", "rdma-core"]):
        done = subprocess.run(
            ["apt-get", "-q", *options, *command], cwd=unfinished, capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"Debian's archive does not give rdma_topo: {done.stderr}")
    (package,) = unfinished.glob("rdma-core_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, unfinished / "unpacked"], check=True)
    shutil.rmtree(CACHE / "unpacked", ignore_errors=True)
    (unfinished / "unpacked").rename(CACHE / "unpacked")
    shutil.rmtree(unfinished)


def check(host: Host, folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """Return the exit status and the lines of ``rdma_topo check`` on ``host``.

    The program runs as a module of this process, because it is called many times.
    """
    recorded = folder / "dump.json"
    recorded.write_text(json.dumps(dump(host)))
    module = types.ModuleType("rdma_topo_program")
    argv, output, status = sys.argv, io.StringIO(), 0
    sys.modules[module.__name__] = module
    sys.argv = ["rdma_topo", "check", "--sysfs-dump-file", str(recorded), *arguments]
    try:
        with contextlib.redirect_stdout(output):
            exec(_program(), module.__dict__)
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.argv = argv
        del sys.modules[module.__name__]
    return status, output.getvalue().splitlines()


@cache
def _program() -> types.CodeType:
    path = tool()
    return compile(path.read_text(encoding="utf-8"), str(path), "exec")


def dump(host: Host) -> list[dict[str, Any]]:
    """Return ``host`` in the format of ``rdma_topo dump``."""
    directs = [function for function in host.functions if (function.vendor_id, function.device_id) == (0x15B3, 0x2100)]
    nics = [function for function in host.functions if function.kind == "nic"]
    # A data-direct function and its NIC have one UUID in field V3 of their vital product data.
    uuids = {
        address: f"uuid-{number}"
        for pair in (directs, nics if directs else [])
        for number, address in enumerate(function.address for function in pair)
    }
    return [_item(host, function, uuids.get(function.address)) for function in host.functions]


def _item(host: Host, function: Function, uuid: str | None) -> dict[str, Any]:
    path = "/".join(step.address for step in host.path(function.address))
    code = f"{function.class_code:06X}"
    item = {
        "realpath": f"/sys/devices/{function.root_complex}/{path}",
        "modalias": f"pci:v{function.vendor_id:08X}d{function.device_id:08X}sv00000000sd00000000"
        f"bc{code[:2]}sc{code[2:4]}i{code[4:]}",
        "config": _packed(_config(function)),
        "iommu_group": function.iommu_group,
        "numa_node": -1 if function.numa_node is None else function.numa_node,
        "subsystems": {},
    }
    if uuid:
        field = b"V3" + bytes([len(uuid)]) + uuid.encode()
        item["vpd"] = _packed(b"\x90" + len(field).to_bytes(2, "little") + field + b"\x78")
    return item


def _config(function: Function) -> bytes:
    """Return config space with the extended capabilities ACS (0x0d) and ATS (0x0f), if the function has them."""
    data = bytearray(4096)
    capabilities = []
    if function.acs:
        body = function.acs.capability.to_bytes(2, "little") + function.acs.control.to_bytes(2, "little")
        capabilities.append((0x0D, body))
    if function.ats:
        capabilities.append((0x0F, bytes(4)))
    for number, (identifier, body) in enumerate(capabilities):
        offset = 0x100 + 0x40 * number
        following = offset + 0x40 if number + 1 < len(capabilities) else 0
        data[offset : offset + 8] = (identifier | 1 << 16 | following << 20).to_bytes(4, "little") + body
    return bytes(data)


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()
