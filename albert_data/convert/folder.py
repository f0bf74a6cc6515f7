"""DIR of a conversion: what it may hold before, what a kill leaves in it, and how it gets all of its files at once.

    DIR/conversion.json      written last: what was converted and to what, and the name, size and hash of each file
    DIR/.convert/lock        see jobs/work_folder.py
                 plan.json   what is converted, and to what
                 the files and conversion.json, until all are there; then they are published in DIR

DIR must be empty, except for hidden files, such as those of git. So nothing is ever replaced, and what is removed lies
in .convert. A command that was killed while it published leaves some of its files in DIR: the user removes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albert_data.convert.writers import find_place
from albert_data.errors import OutputError
from albert_data.jobs.work_folder import WorkFolder
from albert_data.shards.paths import CARD_NAME
from albert_data.storage import FOLDER, find_kind
from albert_data.storage.files import is_there, write_bytes, write_json

RECORD_NAME = "conversion.json"
_PLAN = "plan.json"
_FILES = (_PLAN, "data_*.parquet", "*_shard.*.mds", "*_index.json", CARD_NAME, RECORD_NAME)  # see `find_place`


class ConversionFolder(WorkFolder):
    """DIR, which is `out`, and the working folder in it, `path`."""

    def __init__(self, out: Path) -> None:
        super().__init__(out, ".convert", "conversion", _FILES)
        self.plan_path, self._made = self.path / _PLAN, self.path / RECORD_NAME

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Lock DIR, and remove what a killed command left in .convert.

        Raises OutputError if DIR is no folder or holds anything else, or if another command is writing to it.
        """
        if is_there(self.out) and find_kind(self.out) != FOLDER:
            raise OutputError(f"output {self.out} is no folder; name another one")
        self.lock()
        self._check_empty()
        self.drop()
        write_json(self.plan_path, plan)

    def _check_empty(self) -> None:
        """Raise OutputError if DIR holds anything except hidden files."""
        for name in sorted(self._storage.list_names(self.out)):
            if not name.startswith("."):
                raise OutputError(f"{self.out} holds {name}; move it away, or name a new or empty folder")

    def seal(self, record: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
        """All shards are converted: write the files that describe them, and then the record, which is returned.

        Raises OutputError if something has appeared in DIR meanwhile.
        """
        self._check_empty()
        for name, data in files.items():
            write_bytes(find_place(self.path, name), data)
        self._storage.sync(self.path)
        values = {**record, "files": [*record["files"], *({"name": name} for name in files)]}
        write_json(self._made, values)
        return values

    def publish(self, record: Mapping[str, Any]) -> None:
        """Give all files their names in DIR, and the record last. Call it after `seal`."""
        names = (*(entry["name"] for entry in record["files"]), RECORD_NAME)
        self._storage.publish(self.out, {name: find_place(self.path, name) for name in names})
        self.remove()

    def close(self) -> None:
        """Remove what is left, unless some files may have been published and others not, and free the lock."""
        try:
            if self.is_locked and (not is_there(self._made) or is_there(self.out / RECORD_NAME)):
                self.remove()
        finally:  # also if the disk fails, or Ctrl-C comes here: this process could not convert to DIR again
            self.unlock()
