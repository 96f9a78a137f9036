# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An emulated machine with a network interface that has DCB: Debian's kernel, our driver, and a root in memory.

The packages are downloaded and unpacked to a cache; nothing is installed on this machine, and the only permission
needed is to read apt's lists.
"""

from __future__ import annotations

import lzma
import re
import shutil
import subprocess
import sys
from pathlib import Path

from patience import run_to_its_end
from user_cache import user_cache

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
CACHE = user_cache("dcb")
MAKE_DRIVER = REPOSITORY / "roles" / "lab" / "files" / "make-dcb-driver"
# The modules needed, including rxe's checksum, which the kernel requests by name.
MODULES = ("sailloft_dcb", "rdma_rxe", "rdma_cm", "configfs", "dummy", "crc32_generic")
PROGRAMS = ("/usr/bin/python3", "/usr/sbin/dcb", "/usr/sbin/ip", "/usr/bin/rdma", "/bin/busybox")
# Parts of python3's library that the machine does not need.
LEFT_OUT = (
    "test",
    "idlelib",
    "tkinter",
    "ensurepip",
    "lib2to3",
    "pydoc_data",
    "turtledemo",
    "config-*",
    "dist-packages",
)
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
exec </dev/console >/dev/console 2>&1
mount -t tmpfs none /run
mount -t debugfs none /sys/kernel/debug
modprobe configfs
mount -t configfs none /sys/kernel/config
mkdir -p /run/systemd/system
ip link set dev lo up
python3 -B /inside.py
echo THE END
poweroff -f
"""
# systemd does not run in the machine; all that "enable" does is create the link.
SYSTEMCTL = """#!/bin/busybox sh
mkdir -p /etc/systemd/system/multi-user.target.wants
[ "$1" != enable ] || ln -sf "/etc/systemd/system/$2" "/etc/systemd/system/multi-user.target.wants/$2"
"""
ARGUMENTS = "console=ttyS0 quiet panic=-1 no_timer_check"
MEMORY_MIB = 1024
LIMIT_S = 240


def boot(folder: Path) -> str:
    """Run inside.py in the machine and return what it wrote to the console."""
    kernel = _kernel()
    initramfs = _initramfs(kernel, folder)
    console = folder / "console.log"
    command = ["qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-cpu", "max", "-m", str(MEMORY_MIB)]
    command += ["-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{console}"]
    command += ["-kernel", str(next(kernel.glob("boot/vmlinuz-*"))), "-initrd", str(initramfs), "-append", ARGUMENTS]
    return run_to_its_end(command, console, LIMIT_S)


def _kernel() -> Path:
    """Return the directory of this release's unpacked kernel, which has our driver among its modules."""
    command = [sys.executable, MAKE_DRIVER, CACHE, "linux-image-amd64", "linux-headers-amd64"]
    return Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def _initramfs(kernel: Path, folder: Path) -> Path:
    tree = folder / "tree"
    for name in ("dev", "proc", "sys", "run", "tmp", "bin", "etc", "usr/lib/sailloft"):
        (tree / name).mkdir(parents=True)
    _put(tree / "init", INIT)
    _put(tree / "usr/bin/systemctl", SYSTEMCTL)
    shutil.copy(HERE / "inside.py", tree / "inside.py")
    for program in PROGRAMS:
        _program(tree, Path(program))
    version = next((kernel / "lib" / "modules").iterdir()).name
    _modules(kernel / "lib" / "modules" / version, tree / "lib" / "modules" / version)
    _python(tree)
    image = folder / "initramfs"
    # BusyBox's cpio keeps modification times, by which Python checks its compiled modules.
    with image.open("wb") as out:
        names = subprocess.run(["find", "."], cwd=tree, check=True, capture_output=True).stdout
        subprocess.run(
            ["busybox", "cpio", "-o", "-H", "newc"],
            cwd=tree,
            input=names,
            stdout=out,
            stderr=subprocess.PIPE,
            check=True,
        )
    shutil.rmtree(tree)
    return image


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def _program(tree: Path, program: Path) -> None:
    """Copy a program and the libraries with which it is linked."""
    output = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    for path in [str(program), *re.findall(r"(/\S+) \(0x", output)]:
        target = tree / path.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


def _modules(there: Path, here: Path) -> None:
    """Copy MODULES with their dependencies, and write the table in which modprobe finds them."""
    by_name = {path.name.partition(".ko")[0].replace("-", "_"): path for path in there.rglob("*.ko*")}
    needs: dict[str, list[str]] = {}
    ahead = list(MODULES)
    while ahead:
        name = ahead.pop()
        if name in needs:
            continue
        content = by_name[name].read_bytes()
        content = lzma.decompress(content) if by_name[name].suffix == ".xz" else content
        # The field is in the section .modinfo.
        depends = re.search(rb"\0depends=([\w,-]*)\0", content)
        needs[name] = depends[1].decode().replace("-", "_").split(",") if depends and depends[1] else []
        here.mkdir(parents=True, exist_ok=True)
        (here / f"{name}.ko").write_bytes(content)
        ahead += needs[name]

    def closure(name: str) -> list[str]:
        return [each for need in needs[name] for each in (need, *closure(need))]

    def line(name: str) -> str:
        # modprobe loads the last dependency first, so each module precedes its own dependencies.
        ahead = reversed(dict.fromkeys(reversed(closure(name))))
        return f"{name}.ko: {' '.join(f'{need}.ko' for need in ahead)}\n"

    (here / "modules.dep").write_text("".join(map(line, sorted(needs))))


def _python(tree: Path) -> None:
    """Copy the system's Python and the code under test: the collection, and Ansible's part of a module."""
    ask = ["/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    library = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    shutil.copytree(library, tree / str(library).lstrip("/"), ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    for path in sorted((tree / str(library).lstrip("/") / "lib-dynload").glob("*.so")):
        output = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for needed in re.findall(r"(/\S+) \(0x", output):
            if not (tree / needed.lstrip("/")).exists():
                (tree / needed.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(needed, tree / needed.lstrip("/"))
    import ansible

    code = tree / "code"
    (code / "ansible").mkdir(parents=True)
    ours = Path(ansible.__file__).parent
    # Ansible sends no more of its package than this with a module.
    (code / "ansible" / "__init__.py").write_text(f"__version__ = {ansible.__version__!r}\n")
    shutil.copytree(ours / "module_utils", code / "ansible" / "module_utils")
    for part in ("modules", "module_utils"):
        place = code / "ansible_collections" / "sailloft" / "fleet" / "plugins" / part
        shutil.copytree(REPOSITORY / "plugins" / part, place, ignore=shutil.ignore_patterns("__pycache__"))
