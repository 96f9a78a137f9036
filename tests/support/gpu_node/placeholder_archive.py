# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A local archive of placeholder packages, signed by a new key; the .deb files, apt and gpg are real."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

CONTROL = """Package: {name}
Version: {version}
Architecture: amd64
Maintainer: Sailloft tests <tests@sailloft.invalid>
Description: a placeholder without content of any vendor
"""
UNIT = "[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"


def run(*argv: str, **options) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, **options).stdout


class Archive:
    """A flat archive in ``folder``."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder, self.work = folder, work
        folder.mkdir(parents=True)
        home = work / "gnupg"
        home.mkdir(mode=0o700, parents=True)
        self.gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", ""]
        run(*self.gpg, "--quick-generate-key", "archive <archive@sailloft.invalid>", "ed25519", "sign", "never")
        self.key = run(*self.gpg, "--armor", "--export")
        self.fingerprint = re.search(r"fpr:+([0-9A-F]{40})", run(*self.gpg, "--list-keys", "--with-colons"))[1]

    def add(self, name: str, version: str, files: dict[str, str], fields: str = "") -> None:
        """Build a package with these files (DEBIAN/p* are scripts) and these lines of its control file."""
        control = CONTROL.format(name=name, version=version) + fields
        tree = self.work / f"{name}_{version.replace(':', '-')}"
        for path, text in {**files, "DEBIAN/control": control}.items():
            there = tree / path.lstrip("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_text(text)
            there.chmod(0o755 if path.startswith("DEBIAN/p") else 0o644)
        run("dpkg-deb", "--root-owner-group", "--build", str(tree), str(self.folder), env={**os.environ, "LC_ALL": "C"})

    def publish(self, fields: str = "") -> None:
        """Write the lists, and sign the release, which has these further lines."""
        packages = run("dpkg-scanpackages", "--multiversion", ".", cwd=self.folder)
        (self.folder / "Packages").write_text(packages)
        digest = hashlib.sha256(packages.encode()).hexdigest()
        release = f"Date: Sun, 22 Nov 2026 12:00:00 UTC\n{fields}SHA256:\n {digest} {len(packages.encode())} Packages\n"
        run(*self.gpg, "--clearsign", "--output", str(self.folder / "InRelease"), input=release)

    def close(self) -> None:
        """Stop gpg's agent."""
        run("gpgconf", "--homedir", str(self.work / "gnupg"), "--kill", "gpg-agent")
