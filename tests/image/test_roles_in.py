# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Roles in a real root, of the layers that the build host has made.

One file because they share that root, which takes minutes to make.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from messages import raises
from placeholder_archive import Archive

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import persistence
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import role_digest, roles_in
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import ansible_paths, process
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Role
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import debian
from ansible_collections.sailloft.fleet.plugins.module_utils.nic.persistence import SERVICE as ROCE
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.files import (
    EPILOG_PROGRAM,
    HEALTH_PROGRAM,
    PROLOG_PROGRAM,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.slurm_service import converge as slurm
from ansible_collections.sailloft.fleet.plugins.module_utils.storage import units as storage

SECRET = "a {{ secret }} with 'quotes' and \U0001f512"
GPU_HOST = Role(
    "sailloft.fleet.gpu_host",
    {
        "packages_install": False,
        "gpu_host_hugepages": [{"node": 0, "size_mib": 2, "count": 8}],
        "gpu_host_sriov": [{"devices": ["0000:3b:00.0"], "count": 2}],
        "gpu_host_vfio": ["gpu"],
    },
)
ROCE_HOST = Role(
    "sailloft.fleet.roce_host",
    {"packages_install": False, "roce_host_nics": {"mlx5_0": {"speed_gbit_s": 400, "cable_m": 5}}},
)
SCHEDULER = Role("sailloft.fleet.scheduler", {"packages_install": False, "scheduler_controllers": ["head-1", "head-2"]})
STORAGE_CLIENT = Role(
    "sailloft.fleet.storage_client",
    {
        "packages_install": False,
        "storage_client_local": [{"name": "cache", "numa_node": 0, "count": 2}],
        "storage_client_nfs": [{"source": "nas1:/home", "path": "/home", "cache": "cache"}],
    },
)
# The files that a tuning run would change on the machine on which it runs.
OF_THE_BUILD_HOST = (
    *("/etc/sailloft", "/usr/lib/sailloft", persistence.UNIT_FILE, persistence.WANTS, persistence.ORDER_FILE),
    *("/etc/default/grub.d", "/etc/driverctl.d", "/proc/sys/kernel/hostname", "/proc/sys/vm/nr_hugepages"),
    *("/proc/mounts", "/sys/devices/system/node", "/sys/kernel/mm/hugepages"),
)


@pytest.fixture(scope="module")
def pristine(site, tmp_path_factory):
    """A root of Debian with systemd and Python."""
    root = tmp_path_factory.mktemp("image") / "root"
    layers = site.tree("node")
    for name in ("base", "gpu"):
        command = ["unsquashfs", "-quiet", "-no-progress", "-force", "-d", root, layers[name] / "layer.squashfs"]
        subprocess.run(command, check=True)
    return root


@pytest.fixture
def root(pristine, tmp_path):
    """A new root on top of ``pristine``, like a layer; its changes are in ``upper`` beside it."""
    for name in ("root", "upper", "work"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={pristine},upperdir={tmp_path / 'upper'},workdir={tmp_path / 'work'}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(tmp_path / "root")], check=True)
    yield tmp_path / "root"
    subprocess.run(["umount", str(tmp_path / "root")], check=True)


@pytest.fixture
def make_role(tmp_path, monkeypatch):
    """Return a function that writes a role of one task file to a separate roles path."""
    monkeypatch.setenv("ANSIBLE_ROLES_PATH", str(tmp_path / "roles"))
    ansible_paths.ansible_settings.cache_clear()

    def make(name, tasks):
        place = tmp_path / "roles" / name / "tasks"
        place.mkdir(parents=True, exist_ok=True)
        (place / "main.yml").write_text(tasks)
        return tmp_path / "roles" / name

    yield make
    ansible_paths.ansible_settings.cache_clear()


def tree(root):
    """Return everything below ``root`` except times."""
    found = {}
    for path in sorted(Path(root).rglob("*")):
        facts = path.lstat()
        content = os.readlink(path) if path.is_symlink() else ""
        if path.is_file() and not path.is_symlink():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(root))] = (stat.filemode(facts.st_mode), facts.st_uid, facts.st_gid, content)
    return found


def build_host():
    """Return the state of the files that must not change on the machine that runs these tests."""
    state = {}
    for place in OF_THE_BUILD_HOST:
        paths = [Path(place), *(sorted(Path(place).rglob("nr_hugepages")) if place.startswith("/sys") else [])]
        for path in paths:
            state[str(path)] = (
                path.read_text() if path.is_file() else sorted(os.listdir(path)) if path.is_dir() else None
            )
    return state


def test_gpu_host_is_set_up_for_every_boot_and_the_build_host_is_not_touched(root):
    before = build_host()
    lines = []
    roles_in.apply(root, [GPU_HOST], functools.partial(process.run, show=lines.append), "gpu")
    assert build_host() == before
    upper = root.parent / "upper"
    files = {path for path, facts in tree(upper).items() if not facts[0].startswith("d")}
    # Nothing else is written: no ~/.ansible, no module, no log, no compiled Python.
    assert files == {
        path.lstrip("/")
        for path in (
            *(persistence.SETTINGS, persistence.CODE, persistence.ORDER_FILE),
            *(persistence.UNIT_FILE, persistence.WANTS),
        )
    }
    assert os.readlink(upper / persistence.WANTS.lstrip("/")) == persistence.UNIT_FILE
    saved = json.loads((root / persistence.SETTINGS.lstrip("/")).read_text())
    assert saved["hugepages"] == {"pages": GPU_HOST.vars["gpu_host_hugepages"]}
    assert saved["sriov"] == {"functions": GPU_HOST.vars["gpu_host_sriov"]}
    # The unit uses the Python of the image, not that of the build host.
    assert "ExecStart=/usr/bin/python3" in (root / persistence.UNIT_FILE.lstrip("/")).read_text()
    enabled = ["systemctl", f"--root={root}", "is-enabled", persistence.UNIT]
    assert subprocess.run(enabled, capture_output=True, text=True, check=False).stdout == "enabled\n"

    first = tree(upper)
    lines.clear()
    roles_in.apply(root, [GPU_HOST], functools.partial(process.run, show=lines.append), "gpu")
    assert tree(upper) == first
    assert any("changed=0" in line for line in lines)


@pytest.mark.long
def test_roce_host_is_set_up_for_every_boot_with_nccls_settings(root):
    lines = []
    roles_in.apply(root, [ROCE_HOST], functools.partial(process.run, show=lines.append), "gpu")
    upper = root.parent / "upper"
    files = {path for path, facts in tree(upper).items() if not facts[0].startswith("d")}
    wanted = [ROCE.settings, ROCE.code, ROCE.unit_file, ROCE.wants, "/etc/nccl.conf"]
    assert files == {path.lstrip("/") for path in wanted}
    assert "mlx5_0" in json.loads((root / ROCE.settings.lstrip("/")).read_text())["nics"]
    assert "NCCL_IB_TC=106" in (root / "etc/nccl.conf").read_text().splitlines()
    first = tree(upper)
    lines.clear()
    roles_in.apply(root, [ROCE_HOST], functools.partial(process.run, show=lines.append), "gpu")
    assert tree(upper) == first
    assert any("changed=0" in line for line in lines)


@pytest.mark.long
def test_slurmd_is_enabled_and_asks_the_controllers_for_its_files(root):
    """The unit is that of this machine's package, in place of an installation from the archive."""
    shutil.copy("/lib/systemd/system/slurmd.service", root / "usr/lib/systemd/system/slurmd.service")
    lines = []
    roles_in.apply(root, [SCHEDULER], functools.partial(process.run, show=lines.append), "gpu")
    upper = root.parent / "upper"
    files = {path for path, facts in tree(upper).items() if not facts[0].startswith("d")}
    wants = f"/etc/systemd/system/multi-user.target.wants/{slurm.NODE}"
    # No slurm.conf, and no key: they come at the node's boot.
    programs = (HEALTH_PROGRAM, PROLOG_PROGRAM, EPILOG_PROGRAM)
    wanted = [*programs, slurm.DROP_IN, wants, f"/usr/lib/systemd/system/{slurm.NODE}"]
    assert files == {path.lstrip("/") for path in wanted}
    assert "--conf-server head-1,head-2" in (root / slurm.DROP_IN.lstrip("/")).read_text()
    first = tree(upper)
    lines.clear()
    roles_in.apply(root, [SCHEDULER], functools.partial(process.run, show=lines.append), "gpu")
    assert tree(upper) == first
    assert any("changed=0" in line for line in lines)


@pytest.mark.long
def test_a_layer_with_slurm_and_containers_has_all_that_a_job_needs(site, requested, pristine, tmp_path):
    """Prolog, check and Epilog run in the layer's files with its own Python; slurmd does not."""
    role = {"name": SCHEDULER.name, "vars": {**SCHEDULER.vars, "scheduler_container_directory": "/dev/shm/containers"}}
    del role["vars"]["packages_install"]
    requested["site"] = {"parent": "gpu", "packages": ["apt"], "network": True, "roles": [role]}
    site.build(requested)
    layer = tmp_path / "layer"
    command = ["unsquashfs", "-quiet", "-no-progress", "-d", layer, site.tree("node")["site"] / "layer.squashfs"]
    subprocess.run(command, check=True)
    wants = f"etc/systemd/system/multi-user.target.wants/{slurm.NODE}"
    assert (layer / wants).is_symlink()
    drop_in = (layer / slurm.DROP_IN.lstrip("/")).read_text().splitlines()
    assert "RequiresMountsFor=/dev/shm/containers" in drop_in
    # Also for users with further IDs.
    assert all((layer / f"usr/bin/{name}").exists() for name in ("podman", "crun", "newuidmap"))
    script = f"""set -eu
mount -t overlay overlay -o lowerdir={layer}:{pristine} {tmp_path}/node
cd {tmp_path}/node
mount -t proc proc proc
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs dev
mkdir -m 1777 dev/shm
mknod -m 666 dev/null c 1 3
export SLURM_JOB_ID=7 SLURM_JOB_UID=65534
# The kernel makes no user namespace for a process in a chroot.
pivot_root . mnt
cd /
/usr/bin/sailloft-container check
{PROLOG_PROGRAM}
ls /dev/shm/containers
{EPILOG_PROGRAM}
ls /dev/shm/containers"""
    (tmp_path / "node").mkdir()
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
    ran = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.splitlines()[1:]) == (0, ["7"]), ran


@pytest.mark.long
def test_the_nodes_of_an_image_get_their_storage_when_they_boot(root):
    lines = []
    roles_in.apply(root, [STORAGE_CLIENT], functools.partial(process.run, show=lines.append), "gpu")
    upper = root.parent / "upper"
    files = {path for path, facts in tree(upper).items() if not facts[0].startswith("d")}
    units = {"cache.mount": "multi-user", storage.CACHE_UNIT: "multi-user", "home.mount": "remote-fs"}
    folder = "etc/systemd/system"
    assert files == {
        *("etc/sailloft/storage_client.json", "usr/lib/sailloft/storage_client.pyz", "etc/sailloft/cachefilesd.conf"),
        *(f"{folder}/{unit}" for unit in (*units, storage.BOOT_UNIT)),
        *(f"{folder}/{target}.target.wants/{unit}" for unit, target in units.items()),
        f"{folder}/multi-user.target.wants/{storage.BOOT_UNIT}",
    }
    first = tree(upper)
    lines.clear()
    roles_in.apply(root, [STORAGE_CLIENT], functools.partial(process.run, show=lines.append), "gpu")
    assert tree(upper) == first
    assert any("changed=0" in line for line in lines)


@pytest.mark.long
def test_an_invalid_role_variable_is_refused_before_settings_are_written(root):
    role = Role(GPU_HOST.name, {**GPU_HOST.vars, "gpu_host_vfio": ["gpus"]})
    with pytest.raises(ImageError, match=r"gpu_host.*vfio_binding.devices: 'gpus'"):
        roles_in.apply(root, [role], layer="gpu")
    assert not (root / persistence.SETTINGS.lstrip("/")).exists()


def test_a_module_that_changes_the_running_kernel_is_refused_in_an_image(root, make_role):
    make_role("live", "- name: Live\n  sailloft.fleet.hugepages: {pages: []}\n")
    with raises(ImageError, "kernel", "build host"):
        roles_in.apply(root, [Role("live")])


def test_a_role_is_isolated_from_the_build_host(root, make_role):
    make_role(
        "nosy",
        """
- name: It tries
  ansible.builtin.shell: |
    hostname
    echo 1 > /proc/sys/vm/nr_hugepages; echo written $?
    ls /sys | wc -l
    ls /dev
    env
    echo {{ ansible_facts.keys() | sort | join(' ') }}
    echo {{ ansible_connection }} {{ ansible_facts.is_chroot }} {{ inventory_hostname }}
  register: seen
- name: It tells
  ansible.builtin.copy: {content: "{{ seen.stdout }}", dest: /etc/seen, mode: "0644"}
""",
    )
    os.environ["SITE_TOKEN"] = "of the build host"
    try:
        roles_in.apply(root, [Role("nosy")], layer="site")
    finally:
        del os.environ["SITE_TOKEN"]
    seen = (root / "etc/seen").read_text()
    assert seen.startswith("localhost\n")
    assert "written 0" not in seen
    assert "\n0\n" in seen  # in /sys
    assert "SITE_TOKEN" not in seen
    assert not {"kvm", "vda", "sda", "mem"} & set(seen.split())
    assert "distribution" in seen.split()
    assert not {"processor", "memtotal_mb", "mounts", "devices", "all_ipv4_addresses"} & set(seen.split())
    assert "community.general.chroot True site" in seen
    assert not (root / "usr/sbin/policy-rc.d").exists()


def test_secret_variables_reach_the_role_unchanged_and_are_not_left_behind(root, make_role):
    make_role(
        "secret",
        """
- name: It uses it
  ansible.builtin.copy: {content: "{{ token | hash('sha256') }}", dest: /etc/token.sha256, mode: "0600"}
  no_log: true
- name: It fails with it
  ansible.builtin.command: /bin/sh -c 'exit 3' {{ token | quote }}
  no_log: true
""",
    )
    lines = []
    before = set(Path("/run").glob("sailloft-*"))
    with pytest.raises(ImageError) as failed:
        roles_in.apply(root, [Role("secret", {"token": SECRET})], functools.partial(process.run, show=lines.append))
    assert '"secret : It fails with it" failed' in str(failed.value)
    assert (root / "etc/token.sha256").read_text() == hashlib.sha256(SECRET.encode()).hexdigest()
    assert SECRET not in str(failed.value) + "".join(lines)
    everything = [path.read_bytes() for path in (root.parent / "upper").rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in content for content in everything)
    assert set(Path("/run").glob("sailloft-*")) <= before


@pytest.mark.long
def test_a_package_whose_script_fails_in_a_role_is_named(root, make_role):
    made = Archive(root.parent / "archive", root.parent)
    made.close()
    made.add("failing", "1.0", {"DEBIAN/postinst": "#!/bin/sh\necho cannot find /etc/nonesuch >&2; exit 3\n"})
    shutil.copy(made.folder / "failing_1.0_amd64.deb", root / "var/failing.deb")
    make_role("installing", "- name: Install it\n  ansible.builtin.apt: {deb: /var/failing.deb}\n")
    with pytest.raises(ImageError) as failed:
        roles_in.apply(root, [Role("installing")], layer="gpu", script_failure=debian.script_failure)
    assert str(failed.value).startswith('layer gpu: "installing : Install it" failed: package failing: ')
    assert "exit status 3: cannot find /etc/nonesuch;" in str(failed.value)


@pytest.mark.long
def test_a_role_with_the_network_has_the_lists_of_the_archives_and_leaves_none(site, requested, make_role):
    make_role("installing", "- name: Install it\n  ansible.builtin.apt: {name: hello}\n")
    requested["site"] = {"parent": "gpu", "packages": ["apt"], "network": True, "roles": [{"name": "installing"}]}
    site.build(requested)
    layer = site.tree("node")["site"]
    command = ["unsquashfs", "-lls", layer / "layer.squashfs"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    names = {line.rpartition("squashfs-root/")[2] for line in shown}
    assert "usr/bin/hello" in names
    assert not [name for name in names if name.startswith(("var/lib/apt/lists/", "var/cache/apt/archives/"))]


def test_an_image_without_python_is_refused(tmp_path):
    with raises(ImageError, "gpu", "/usr/bin/python3"):
        roles_in.apply(tmp_path, [GPU_HOST], layer="gpu")


def test_a_missing_role_is_refused(root):
    with raises(ImageError, "roles no_such_role"):
        roles_in.apply(root, [Role("no_such_role")])
    with raises(ImageError, "role no_such_role"):
        role_digest.content_digest("no_such_role")
    with pytest.raises(ImageError, match=r"^role sailloft.fleet.nothing: .*fleet/roles"):
        role_digest.content_digest("sailloft.fleet.nothing")


def test_the_digest_covers_the_files_of_a_role_and_of_its_included_roles(make_role):
    outer = make_role("outer", "- ansible.builtin.include_role: {name: inner}\n")
    inner = make_role("inner", "- ansible.builtin.debug:\n")
    make_role("stranger", "- ansible.builtin.debug:\n")
    seen = [role_digest.content_digest("outer")]
    assert role_digest.content_digest("outer") == seen[0]
    make_role("stranger", "- ansible.builtin.meta: noop\n")
    (outer / "tasks/__pycache__").mkdir()
    (outer / "tasks/__pycache__/x.pyc").write_text("x")
    assert role_digest.content_digest("outer") == seen[0]
    for change in (
        lambda: (inner / "tasks/main.yml").write_text("- ansible.builtin.meta: noop\n"),
        lambda: (outer / "script").write_text("#!/bin/sh\n"),
        lambda: (outer / "script").chmod(0o755),
        lambda: (outer / "script").rename(outer / "program"),
    ):
        change()
        seen.append(role_digest.content_digest("outer"))
    assert len(set(seen)) == len(seen)


def test_the_digest_covers_the_modules_of_the_roles_collection(tmp_path, monkeypatch):
    place = tmp_path / "ansible_collections/site/things"
    for path, text in {
        "roles/one/tasks/main.yml": "- site.things.tune:\n",
        "plugins/modules/tune.py": "from ansible_collections.site.things.plugins.module_utils import deep\n",
        "plugins/module_utils/deep.py": "A = 1\n",
        "plugins/module_utils/other.py": "A = 1\n",
    }.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    (place / "galaxy.yml").write_text("namespace: site\nname: things\nversion: 1.0.0\n")
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path))
    ansible_paths.collections.cache_clear()
    try:
        first = role_digest.content_digest("site.things.one")
        (place / "plugins/module_utils/other.py").write_text("A = 2\n")
        assert role_digest.content_digest("site.things.one") == first
        (place / "plugins/module_utils/deep.py").write_text("A = 2\n")
        assert role_digest.content_digest("site.things.one") != first
    finally:
        ansible_paths.collections.cache_clear()
