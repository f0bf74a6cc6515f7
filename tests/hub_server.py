"""An imitation of the Hugging Face Hub on this machine: commits of files, gated repositories, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

_NAME = r"(?P<name>[^/]+/[^/]+)"
_API = re.compile(rf"/api/(?P<kind>models|datasets)/{_NAME}/(?P<what>revision|tree)/(?P<revision>[^?]+)")
_FILE = re.compile(rf"/(?P<kind>datasets/)?{_NAME}/resolve/(?P<revision>[^/]+)/(?P<path>[^?]+)")


class Hub(ThreadingHTTPServer):
    """repos: by kind and name, the newest commit. commits: by hash, the files. requests: method, path and token.

    branches: all lead to the newest commit. accepts_token: False answers as for a token that has expired.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[tuple[str, str], str] = {}
        self.commits: dict[str, Mapping[str, bytes]] = {}
        self.gated: set[str] = set()
        self.branches = ["main"]
        self.accepts_token = True
        self.requests: list[tuple[str, str, str | None]] = []
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def push(self, kind: str, name: str, files: Mapping[str, bytes]) -> str:
        """Add a commit to a repository, models or datasets, and return its hash."""
        commit = sha1(repr((kind, name, sorted(files.items()))).encode()).hexdigest()
        self.repos[kind, name] = commit
        self.commits[commit] = files
        return commit


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path = self.path.replace("%2F", "/")
        self.server.requests.append((self.command, path, self.headers["authorization"]))
        found = _API.match(path) or _FILE.match(path)
        kind = (found["kind"] or "models").rstrip("/") if found else ""
        commit = self.server.repos.get((kind, found["name"])) if found else None
        if not self.server.accepts_token:
            self._answer(401, b"", **{"X-Error-Message": "Invalid credentials in Authorization header"})
        elif found is None or commit is None:
            self._answer(401, b"", **{"X-Error-Code": "RepoNotFound"})
        elif found["name"] in self.server.gated:
            self._answer(403, b"", **{"X-Error-Code": "GatedRepo"})
        elif found["revision"] not in (*self.server.branches, *self.server.commits):
            self._answer(404, b"", **{"X-Error-Code": "RevisionNotFound"})
        else:
            commit = commit if found["revision"] in self.server.branches else found["revision"]
            self._give(found, commit)

    do_HEAD = do_GET

    def _give(self, found: re.Match[str], commit: str) -> None:
        files = self.server.commits[commit]
        if "path" in found.groupdict():
            data = files[found["path"]]
            self._answer(200, data, **{"X-Repo-Commit": commit, "ETag": f'"{sha1(data).hexdigest()}"'})
            return
        if found["what"] == "revision":
            siblings = [{"rfilename": path} for path in files]
            answer: Any = {"id": found["name"], "sha": commit, "siblings": siblings, "private": False}
        else:
            answer = [
                {"type": "file", "path": path, "size": len(data), "oid": sha1(data).hexdigest()}
                for path, data in files.items()
            ]
        self._answer(200, json.dumps(answer).encode(), **{"Content-Type": "application/json"})

    def _answer(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass
