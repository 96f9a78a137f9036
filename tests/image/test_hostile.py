# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A hostile package and a hostile role try to reach canaries on the build host during a real build."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from placeholder_archive import Archive

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import ansible_paths

PROBE = Path(__file__).parent / "probe.py"
# A setting whose value has no effect while the kernel runs.
SETTING = "/proc/sys/kernel/panic"
POSTINST = "#!/bin/sh\npython3 /usr/lib/hostile/probe.py /usr/lib/hostile/canaries.json package\n"
# Each task runs the probe in another way; the result of a task has no effect.
ROLE = """
- name: In the image
  ansible.builtin.command: python3 /usr/lib/hostile/probe.py /usr/lib/hostile/canaries.json task
- name: On the controller
  ansible.builtin.command: "{{ probe }} delegated"
  delegate_to: localhost
  connection: local
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
- name: In a template
  ansible.builtin.debug: {msg: "{{ lookup('ansible.builtin.pipe', probe ~ ' lookup') }}"}
- name: By a connection of its own
  ansible.builtin.command: "{{ probe }} local"
  vars: {ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"}
"""
VARIABLES = """
- name: As the variables of the layer request it
  ansible.builtin.command: "{{ probe }} variables"
"""
WAYS = {"package", "task", "delegated", "lookup", "local", "variables"}
WAITING = """
import signal, sys
def note(number, frame):
    with open(sys.argv[1], "a") as stream:
        stream.write(str(number))
for one in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(one, note)
password = sys.stdin.readline()
print("ready", flush=True)
while True:
    signal.pause()
"""


class Canaries:
    """A file, a key, a process with a password in its memory, listeners, a kernel setting and a key of the kernel."""

    def __init__(self, folder: Path, key: Path, cache: Path) -> None:
        self.marker = f"canary-{secrets.token_hex(8)}"
        self.file, self.signals = folder / "canary/file", folder / "signals"
        self.file.parent.mkdir(mode=0o700)
        self.file.write_text(self.marker)
        password = f"Pass-{secrets.token_hex(16)}-word"
        command = [sys.executable, "-c", WAITING, self.signals, self.marker]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(f"{password}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()
        self.password = password  # so that it is in the builder's memory, too
        self.reached: list[str] = []
        tcp = self.listen(socket.AF_INET, ("0.0.0.0", 0))
        self.listen(socket.AF_UNIX, f"\0{self.marker}")
        self.listen(socket.AF_UNIX, os.fspath(folder / "socket"))
        self.setting = Path(SETTING).read_text()
        libc = ctypes.CDLL(None, use_errno=True)
        add_key = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
        serial = libc.syscall(add_key, b"user", self.marker.encode(), b"secret", 6, -4)  # -4: the user's keyring
        disk = os.stat("/").st_dev
        self.description = {
            "file": os.fspath(self.file),
            "key": os.fspath(key),
            "cache": os.fspath(cache / "lock"),
            "pid": self.process.pid,
            "marker": self.marker,
            "password_sha256": hashlib.sha256(password.encode()).hexdigest(),
            "port": tcp.getsockname()[1],
            "addresses": ["127.0.0.1", *subprocess.check_output(["hostname", "-I"], text=True).split()[:1]],
            "socket": self.marker,
            "socket_path": os.fspath(folder / "socket"),
            "setting": SETTING,
            "serial": serial,
            "disk": [os.major(disk), os.minor(disk)],
        }
        self.null = os.stat("/dev/null").st_ctime_ns

    def listen(self, family: int, address: object) -> socket.socket:
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen()

        def accept() -> None:
            while True:
                listener.accept()
                self.reached.append(str(address))

        threading.Thread(target=accept, daemon=True).start()
        return listener

    def touched(self) -> list[str]:
        """Return what was changed, signalled or reached."""
        time.sleep(0.2)
        changes = {
            "file": self.file.read_text() != self.marker or os.listdir(self.file.parent) != ["file"],
            "process": self.signals.exists() or self.process.poll() is not None,
            "kernel setting": Path(SETTING).read_text() != self.setting,
            "device": os.stat("/dev/null").st_ctime_ns != self.null,
        }
        return [name for name, changed in changes.items() if changed] + sorted(set(self.reached))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        Path(SETTING).write_text(self.setting)


@pytest.fixture
def canaries(tmp_path, site):
    made = Canaries(tmp_path, site.keys / "image.key", site.cache)
    yield made
    made.close()


@pytest.fixture
def roles(tmp_path, monkeypatch) -> Path:
    """The directory of roles that the build host's Ansible uses."""
    monkeypatch.setenv("ANSIBLE_ROLES_PATH", str(tmp_path / "roles"))
    ansible_paths.ansible_settings.cache_clear()
    yield tmp_path / "roles"
    ansible_paths.ansible_settings.cache_clear()


def write_role(folder: Path, tasks: str, canaries: Canaries) -> None:
    (folder / "tasks").mkdir(parents=True)
    (folder / "tasks/main.yml").write_text(tasks)
    (folder / "files").mkdir()
    (folder / "files/probe.py").write_text(PROBE.read_text())
    (folder / "files/canaries.json").write_text(json.dumps(canaries.description))
    (folder / "vars").mkdir()
    files = "{{ role_path }}/files"
    probe = f"{{{{ ansible_playbook_python }}}} {files}/probe.py {files}/canaries.json"
    (folder / "vars/main.yml").write_text(json.dumps({"probe": probe}))


def test_the_probe_finds_the_canaries_where_there_is_no_room(canaries, tmp_path):
    """Otherwise a probe that is broken would prove nothing."""
    (tmp_path / "canaries.json").write_text(json.dumps({**canaries.description, "results": str(tmp_path / "results")}))
    own_mounts = ["unshare", "--mount", "--propagation", "private"]
    subprocess.run([*own_mounts, sys.executable, PROBE, tmp_path / "canaries.json", "host"], check=True)
    got = json.loads((tmp_path / "results/host.json").read_text())
    assert {
        *("path: read file", "path: write file", "path: read key", "cmdline of a process", "memory of a process"),
        *("trace", "listener", "abstract socket", "kernel setting", "mount proc", "new namespace user", "find a key"),
    } <= set(got)
    touched = set(canaries.touched())
    assert {"file", "process", "kernel setting"} <= touched
    assert len(touched) >= 5


def test_a_hostile_package_and_role_reach_no_canary(site, requested, canaries, roles, tmp_path, monkeypatch):
    monkeypatch.setenv("SITE_TOKEN", canaries.password)
    write_role(roles / "hostile", ROLE, canaries)
    write_role(roles / "hostile_variables", VARIABLES, canaries)
    archive = Archive(tmp_path / "archive", tmp_path / "work")
    archive.close()
    files = {
        "DEBIAN/postinst": POSTINST,
        "usr/lib/hostile/probe.py": PROBE.read_text(),
        "usr/lib/hostile/canaries.json": json.dumps(canaries.description),
    }
    archive.add("hostile", "1.0", files, "Depends: python3\n")
    archive.publish()
    (tmp_path / "key.asc").write_text(archive.key)
    local = {"url": f"file://{archive.folder}", "suites": ["./"], "keyring": str(tmp_path / "key.asc")}
    out = {"ansible_connection": "local", "ansible_host": "127.0.0.1", "ansible_python_interpreter": sys.executable}
    layers = {
        "base": requested["base"],
        "gpu": requested["gpu"],  # with Python
        "hostile": {
            "parent": "gpu",
            "archives": [local],
            "packages": ["hostile"],
            "roles": [{"name": "hostile"}, {"name": "hostile_variables", "vars": out}],
        },
    }
    (outcome,), _lines, _seconds = site.checking().build(layers, {"hostile": {"layer": "hostile"}})
    assert "hostile" in outcome.built
    assert canaries.touched() == []
    tree = tmp_path / "tree"
    for layer in (site.cache / "layers").glob("*/layer.squashfs"):
        command = ["unsquashfs", "-quiet", "-no-progress", "-force", "-d", tree, layer, "var/lib/hostile"]
        subprocess.run(command, check=True)
    results = {path.stem: json.loads(path.read_text()) for path in (tree / "var/lib/hostile").glob("*.json")}
    assert set(results) == WAYS
    assert not {name: got for name, got in results.items() if got}
    assert not list(site.cache.rglob("poison.deb"))
    assert stat.S_IMODE(os.stat("/dev/null").st_mode) == 0o666
    assert canaries.process.poll() is None
    os.kill(canaries.process.pid, signal.SIGTERM)
    time.sleep(0.2)
    assert canaries.touched() == ["process"]
