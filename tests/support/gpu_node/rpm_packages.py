# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""RPM packages and repositories that tests make, with real rpmbuild and createrepo_c, and trees of them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import urllib.request

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import rpm

RUN = Run("the test", print)
TIME = 1_700_000_000
KERNEL = "5.14.0-503.el9.x86_64"
SPECS = {
    "filesystem": """
Name: filesystem
Version: 3.16
Release: 2.el9
Summary: Directories
License: Public Domain
BuildArch: noarch
%description
Directories.
%install
cd %{buildroot}
mkdir -p boot dev etc home proc root run sys tmp usr/bin usr/lib/modules usr/sbin var/lib var/log
ln -s usr/lib lib
ln -s usr/bin bin
%files
%attr(0555, root, root) /boot
/dev
/etc
/home
%attr(0555, root, root) /proc
%attr(0550, root, root) /root
/run
%attr(0555, root, root) /sys
%attr(1777, root, root) /tmp
/usr
/lib
/bin
/var
""",
    "hello": """
Name: hello
Version: 2.10
Release: {release}.el9
Epoch: 1
Summary: A program without a shell
License: Public Domain
BuildArch: noarch
Requires: filesystem
%description
Hello.
%install
mkdir -p %{{buildroot}}/usr/bin %{{buildroot}}/etc
echo 'hello {release}' > %{{buildroot}}/usr/bin/hello
echo 'greeting = hello' > %{{buildroot}}/etc/hello.conf
%post -p <lua>
local file = io.open("/etc/hello.installed", "w")
local null = io.open("/dev/null", "w")
null:write("as scriptlets do")
null:close()
file:write("by a scriptlet\\n")
file:close()
%files
%attr(0755, root, root) /usr/bin/hello
%config(noreplace) /etc/hello.conf
%ghost /etc/hello.installed
""",
    **{
        name: f"""
Name: {name}
Version: 1
Release: 1
Summary: A package whose script fails
License: Public Domain
BuildArch: noarch
Requires: filesystem
%description
Failing.
%{script} -p <lua>
print("cannot find /etc/nonesuch")
error("no good")
%files
"""
        for name, script in (("fails-before", "pre"), ("fails-after", "post"))
    },
    "kernel-core": f"""
Name: kernel-core
Version: 5.14.0
Release: 503.el9
Summary: A kernel as EL lays it out
License: Public Domain
Requires: filesystem
%description
A kernel.
%install
mkdir -p %{{buildroot}}/usr/lib/modules/{KERNEL}
echo 'a kernel' > %{{buildroot}}/usr/lib/modules/{KERNEL}/vmlinuz
%files
/usr/lib/modules/{KERNEL}
""",
}


def package(folder, name, text, key=None):
    """Build an RPM into ``folder``; each package name has its own build directory."""
    home = folder / ".build"
    home.mkdir(parents=True, exist_ok=True)
    spec = home / f"{name}.spec"
    spec.write_text(text)
    defined = {
        "_topdir": f"{home}/top",
        "_rpmdir": str(folder),
        "_dbpath": f"{home}/db",
        "_buildhost": "builder",
        "use_source_date_epoch_as_buildtime": "1",
        "clamp_mtime_to_source_date_epoch": "1",
    }
    options = [word for macro, value in defined.items() for word in ("--define", f"{macro} {value}")]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(TIME)}
    target = [] if "noarch" in text else ["--target", "x86_64"]
    command(["rpmbuild", "-bb", *target, *options, str(spec)], env=environment)
    if key:
        for path in folder.glob(f"*/{name}-*.rpm"):
            sign = ["rpmsign", "--define", "__gpg /usr/bin/gpg", "--define", f"_gpg_name {key.name}", "--addsign"]
            command([*sign, str(path)], env={**os.environ, "GNUPGHOME": str(key.home)})


def command(argv, env=None):
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def index(folder):
    options = ["--quiet", "--revision", str(TIME), "--set-timestamp-to-revision", "--excludes", ".build/*"]
    command(["createrepo_c", *options, str(folder)])


def archive(folder, keyring=None):
    digest = hashlib.sha256((folder / "repodata/repomd.xml").read_bytes()).hexdigest()
    return (
        {"url": f"file://{folder}", "keyring": keyring}
        if keyring
        else {"url": f"file://{folder}", "release_sha256": {"repomd": digest}}
    )


def fetch(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read()


def caches(root):
    """Return the builder's download directory beside a root; each root has its own."""
    return Caches({rpm.CACHE: root.parent / f"{root.name}.cache"}, root.parent)


def built(root, layer):
    """Install ``layer`` in ``root`` as the builder does; return the packages."""
    root.mkdir(exist_ok=True)
    digests = rpm.release_digests(layer, fetch)
    rpm.install(root, layer, RUN, digests, caches(root))
    packages = rpm.packages(root, RUN)
    rpm.clean(root, RUN)
    return packages
