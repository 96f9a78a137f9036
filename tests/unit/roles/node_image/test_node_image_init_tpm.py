# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage keeps the highest sequence in a TPM (swtpm), by commands that it writes itself."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import tty
from pathlib import Path

import pytest
from first_stage import shell
from sockets import wait_for_listener

from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured

pytestmark = pytest.mark.skipif(
    not shutil.which("busybox") or not shutil.which("swtpm"), reason="no busybox or swtpm here (bindep.txt)"
)


class Tpm:
    """A software TPM behind a terminal, which stands for /dev/tpmrm0: a character device of one command and answer."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        place = folder / "socket"
        # That of the TPM before it, which was stopped.
        place.unlink(missing_ok=True)
        options = ["--tpm2", "--tpmstate", f"dir={folder}", "--flags", "not-need-init,startup-clear"]
        command = ["swtpm", "socket", *options, "--server", f"type=unixio,path={place}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.socket = socket.socket(socket.AF_UNIX)
        wait_for_listener(place, self.process)
        self.socket.connect(str(place))
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave)
        self.device = os.ttyname(self.slave)
        threading.Thread(target=self.relay, daemon=True).start()

    def relay(self) -> None:
        while True:
            try:
                os.write(self.master, self.call(os.read(self.master, 4096)))
            except OSError:
                return

    def call(self, command: bytes) -> bytes:
        self.socket.sendall(command)
        return self.socket.recv(4096)

    def stop(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture
def tpm(tmp_path):
    made = Tpm(tmp_path / "tpm")
    yield made
    made.stop()


def passed(tmp_path, tpm, sequence: int) -> str:
    """Return the output of the first stage's steps with a statement of this sequence."""
    script = f"""
        tpm={tpm.device} sequence={sequence}
        read_seen
        if check_sequence; then write_seen; else echo "$reason"; fi
        echo "seen=$seen_sequence rollback=$rollback"
    """
    return shell(tmp_path, script)


def test_the_highest_sequence_is_kept_and_an_older_one_refused(tmp_path, tpm):
    assert passed(tmp_path, tpm, 5) == "seen=0 rollback=TPM\n"
    assert passed(tmp_path, tpm, 5) == "seen=5 rollback=TPM\n"
    assert passed(tmp_path, tpm, 7) == "seen=5 rollback=TPM\n"
    output = passed(tmp_path, tpm, 6)
    assert "statement 6 is older than 7, which this node has seen" in output
    assert output.endswith("seen=7 rollback=TPM\n")
    assert passed(tmp_path, tpm, 4_000_000_000) == "seen=7 rollback=TPM\n"
    assert passed(tmp_path, tpm, 4_000_000_000) == "seen=4000000000 rollback=TPM\n"


def test_a_command_with_any_octet_reaches_the_tpm_whole(tmp_path, tpm):
    """A shell writes what it prints line by line, and 0x0a ends a line; the kernel takes each write as one command."""
    sequence = 0x6B0AC7E8
    assert passed(tmp_path, tpm, sequence) == "seen=0 rollback=TPM\n"
    assert passed(tmp_path, tpm, sequence) == f"seen={sequence} rollback=TPM\n"


def test_the_sequence_outlives_the_power(tmp_path):
    for sequence, seen in ((3, 0), (3, 3)):
        one = Tpm(tmp_path / "tpm")
        assert passed(tmp_path, one, sequence) == f"seen={seen} rollback=TPM\n"
        # TPM2_Shutdown(CLEAR), as the kernel sends at a reboot.
        assert one.call(bytes.fromhex("80010000000c000001450000"))[6:10] == bytes(4)
        one.stop()


def test_an_owner_with_a_password_is_named_and_the_node_boots(tmp_path, tpm):
    # TPM2_HierarchyChangeAuth of the owner, to "x": nobody may define an index without it.
    command = "800200000024000001294000000100000009400000090000000000000178"
    command = command.replace("00000024", f"{len(bytes.fromhex(command)):08x}")
    assert tpm.call(bytes.fromhex(command))[6:10] == bytes(4)
    output = passed(tmp_path, tpm, 5)
    assert "warning: the TPM does not keep the statement's sequence" in output
    assert output.endswith("seen=0 rollback=expiry\n")


@pytest.mark.parametrize("answer", [b"", bytes.fromhex("80010000000a00000101")])
def test_a_tpm_that_fails_is_named_and_the_node_boots(tmp_path, answer):
    """0x101 is TPM_RC_FAILURE, with which a TPM in failure mode answers all commands."""
    master, slave = os.openpty()
    tty.setraw(slave)

    class Broken:
        device = os.ttyname(slave)

    def reply() -> None:
        while answer:
            os.read(master, 4096)
            os.write(master, answer)

    threading.Thread(target=reply, daemon=True).start()
    script = f"""
        timeout() {{ shift; busybox timeout 1 "$@"; }}
        tpm={Broken.device} sequence=5
        read_seen
        check_sequence && write_seen
        echo "rollback=$rollback"
    """
    output = shell(tmp_path, script)
    assert "warning: the TPM does not give the sequence" in output
    assert output.endswith("rollback=expiry\n")


def test_a_node_without_a_tpm_is_protected_by_the_expiry_only(tmp_path):
    script = 'tpm=/nonexistent sequence=5; read_seen; check_sequence && write_seen; echo "$rollback $warnings"'
    assert shell(tmp_path, script) == "expiry \n"


def pcr(tpm) -> str:
    """Return the TPM's value of PCR 8 in the bank of sha256 (TPM2_PCR_Read)."""
    return tpm.call(bytes.fromhex("8001000000140000017e00000001000b03000100"))[-32:].hex()


def test_the_image_is_measured_as_predicted_and_only_by_a_signed_kernel(tmp_path, tpm):
    script = f"tpm={tpm.device} signed=%s image={'5' * 64}; measure_image; echo $warnings"
    assert shell(tmp_path, script % "") == "\n"
    assert pcr(tpm) == measured.BEGIN
    assert shell(tmp_path, script % 1) == "\n"
    assert pcr(tpm) == measured.extended(measured.BEGIN, "5" * 64)


def test_a_node_whose_tpm_does_not_measure_boots_with_a_warning(tmp_path):
    master, slave = os.openpty()
    tty.setraw(slave)
    threading.Thread(target=lambda: (os.read(master, 4096), os.write(master, bytes(10))), daemon=True).start()
    script = f"tpm={os.ttyname(slave)} signed=1 image={'5' * 64}; tpm_says() {{ false; }}; measure_image; echo went on"
    output = shell(tmp_path, script)
    assert "warning: the TPM does not measure the image" in output
    assert output.endswith("went on\n")
    assert shell(tmp_path, "tpm=/nonexistent signed=1; measure_image; echo $warnings") == "\n"
