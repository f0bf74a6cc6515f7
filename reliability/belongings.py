"""The user's own files in and beside an output folder. They must stay unchanged, whatever happens to a command."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

# Put beside the files of a build. None has the name of a file of ours.
COMMON = (
    "notes.txt",
    ".DS_Store",
    "lost+found/",
    "run/x",
    "train/notes.txt",
    "tokenizer/notes.txt",
    "manifest.json.bak",
)
HIDDEN = tuple(name for name in COMMON if name.startswith("."))  # in an empty folder too
BESIDE = ("notes.txt", "out.tmp", "out-old/manifest.json")


@dataclass(kw_only=True)
class Belongings:
    """Files, folders and links of the user, as they were made."""

    files: dict[Path, bytes] = field(default_factory=dict)
    links: dict[Path, str] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)
    devices: list[Path] = field(default_factory=list)

    def plant(self, root: Path, names: tuple[str, ...]) -> None:
        """Make files with these names; a name that ends in / is an empty folder."""
        for name in names:
            path = root / name
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
                self.folders.append(path)
            else:
                self.write(path, f"The user's own {name}.\n".encode())

    def write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.files[path] = data

    def link(self, path: Path, target: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
        self.links[path] = os.readlink(path)

    def make_device(self, path: Path) -> None:
        """Make a device like /dev/null. Raises PermissionError if this user may not make one."""
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        self.devices.append(path)

    def find_faults(self) -> list[str]:
        """Describe each that is gone or changed."""
        faults = []
        for path, data in self.files.items():
            if not path.is_file():
                faults.append(f"the user's file {path.name} in {path.parent.name} is gone")
            elif path.read_bytes() != data:
                faults.append(f"the user's file {path.name} in {path.parent.name} has changed")
        faults += [f"the user's folder {path.name} is gone" for path in self.folders if not path.is_dir()]
        faults += [f"the device {path.name} is gone" for path in self.devices if not path.is_char_device()]
        for path, target in self.links.items():
            if not path.is_symlink() or os.readlink(path) != target:
                faults.append(f"the user's link {path.name} in {path.parent.name} is gone or changed")
        return faults

    def holds(self, path: Path) -> bool:
        """Whether a path is one of these, or inside one."""
        mine = [*self.files, *self.links, *self.folders, *self.devices]
        return any(path == own or own in path.parents for own in mine)
