# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Software TPMs, a store served over HTTP, and nodes in directories; all tools are the real ones."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from identity_site import SECRET, TOKEN, files, make_keys, record_arguments

from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identities
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "roles" / "node_identity" / "files" / "sailloft-identity"
# All commands that the node's script may run: a test provides only these, and records their arguments.
COMMANDS = (
    "sh",
    *("base64", "cat", "chmod", "cp", "cut", "head", "install", "ln", "mkdir", "mktemp", "mv", "od", "rm", "sha256sum"),
    *("shuf", "sleep", "tail", "tr", "wc", "sed", "curl", "minisign", "openssl", "ssh-keygen"),
    *("tpm2_createek", "tpm2_flushcontext", "tpm2_loadexternal", "tpm2_startauthsession", "tpm2_policysecret"),
    *("tpm2_activatecredential", "tpm2_policypcr", "tpm2_verifysignature", "tpm2_policyauthorize"),
    "tpm2_policycommandcode",
)


class Tpm:
    """A separate TPM, emulated by swtpm, with its state in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()

    def start(self) -> None:
        """Power the TPM on, on other ports than before, which the system may keep for a while."""
        self.port = _two_ports()
        self.tcti = f"swtpm:port={self.port}"
        self._process = subprocess.Popen(
            [
                *("swtpm", "socket", "--tpm2", "--tpmstate", f"dir={self.folder}"),
                *("--server", f"type=tcp,port={self.port},bindaddr=127.0.0.1"),
                *("--ctrl", f"type=tcp,port={self.port + 1},bindaddr=127.0.0.1"),
                *("--flags", "not-need-init,startup-clear"),
            ]
        )
        until = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port + 1)) == 0:
                    return
            assert time.monotonic() < until, "swtpm does not listen"
            time.sleep(0.02)

    def stop(self) -> None:
        """Power the TPM off."""
        self._process.terminate()
        self._process.wait(10)

    def run(self, *argv: str) -> bytes:
        """Run one of tpm2-tools against this TPM and return its output."""
        environment = {**os.environ, "TPM2TOOLS_TCTI": self.tcti}
        done = subprocess.run(argv, env=environment, cwd=self.folder, capture_output=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    @functools.cached_property
    def ek(self) -> str:
        """Return the public part of the endorsement key, in base64."""
        self.run("tpm2_createek", "-G", "rsa", "-u", "ek.pub", "-c", "ek.ctx")
        self.run("tpm2_flushcontext", "-t")
        return base64.b64encode((self.folder / "ek.pub").read_bytes()).decode()


def _two_ports() -> int:
    """Return a free port whose next port is free, too: tpm2-tss expects swtpm's control channel there."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


@pytest.fixture(scope="session")
def new_tpm(tmp_path_factory):
    started = []

    def start() -> Tpm:
        started.append(Tpm(tmp_path_factory.mktemp("tpm")))
        return started[-1]

    yield start
    for tpm in started:
        tpm.stop()


@pytest.fixture(scope="session")
def tpms(new_tpm):
    return {"bm01": new_tpm(), "bm02": new_tpm()}


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    """A key pair of minisign without a password."""
    folder = tmp_path_factory.mktemp("keys")
    return make_keys(folder, "site")


@dataclass
class Site:
    """A store, the signer of its bundles, and its nodes."""

    store: Store
    signer: Signer
    nodes: list[dict] = field(default_factory=list)

    def publish(self, check: bool = False, removed: Iterable[str] = ()) -> identities.BundleChange:
        return identities.ensure(self.store, identities.read_nodes(self.nodes), self.signer, check, tuple(removed))

    def bundle(self, node: str) -> Path:
        return Path(self.store.place("identity", node))


@pytest.fixture
def site(tmp_path, tpms, keys):
    root = tmp_path / "store"
    for name in ("blobs", "images"):
        (root / name).mkdir(parents=True)
    nodes = [
        {"name": "bm01", "ek": tpms["bm01"].ek, "secrets": files(host_key=SECRET, token=TOKEN, empty="")},
        {"name": "bm02", "ek": tpms["bm02"].ek, "secrets": files(host_key="the key of bm02\n")},
    ]
    return Site(Store(str(root)), keys, nodes)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments):
        pass


@pytest.fixture
def serve():
    """Return a function that serves a directory over HTTP and returns its URL."""
    servers = []

    def start(folder: Path | str) -> str:
        handler = functools.partial(_Quiet, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@dataclass
class Booted:
    """A node's root directory, and the result of its script."""

    root: Path
    status: int
    output: str
    arguments: str

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def has(self, path: str) -> bool:
        return (self.root / path).exists()


@pytest.fixture
def boot(tmp_path, tpms, keys):
    """boot(name, servers...): run the node's script with a TPM, in a new root with files or in an old root."""
    log = tmp_path / "arguments"
    commands = record_arguments(tmp_path / "bin", log, COMMANDS)

    def run(
        name: str,
        *servers: str,
        tpm: Tpm | None = None,
        wait_s: int = 1,
        before: dict[str, str] | None = None,
        again: Path | None = None,
    ) -> Booted:
        root = again or Path(tmp_path, f"node{len(list(tmp_path.glob('node*')))}")
        for folder in ("proc", "etc/sailloft", "etc/ssh"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "proc/cmdline").write_text(f"quiet sailloft.servers={','.join(servers)} sailloft.node={name} ro\n")
        shutil.copy(keys.public_key, root / "etc/sailloft/identity.pub")
        for path, text in (before or {}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        log.write_text("")
        environment = {"PATH": str(commands), "TPM2TOOLS_TCTI": (tpm or tpms[name]).tcti}
        done = subprocess.run(
            [
                *(shutil.which("sh"), "-c", f'echo $$ >{tmp_path}/script; exec sh "$@"', "sh"),
                *(str(SCRIPT), str(wait_s), str(root)),
            ],
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return Booted(root, done.returncode, done.stdout, log.read_text())

    return run


@pytest.fixture
def play(tmp_path):
    """play(tasks, variables of hosts, options...): run the tasks; return ansible-playbook's output and exit status."""

    def run(tasks: list, hosts: dict, *options: str, path: Path | None = None) -> tuple[str, int]:
        inventory = tmp_path / "inventory.json"
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        every = {"localhost": local, **hosts}
        inventory.write_text(json.dumps({"all": {"hosts": every}}))
        playbook = tmp_path / "play.yml"
        plays = (
            tasks if tasks and "hosts" in tasks[0] else [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]
        )
        playbook.write_text(json.dumps(plays))
        environment = {
            **os.environ,
            "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"],
            "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
            "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "1",
            "ANSIBLE_NOCOLOR": "1",
        }
        done = subprocess.run(
            ["ansible-playbook", "-i", str(inventory), *options, str(playbook)],
            cwd=REPOSITORY,
            check=False,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
        return done.stdout, done.returncode

    return run
