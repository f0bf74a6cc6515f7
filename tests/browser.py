"""A headless Chromium for the tests, driven over its DevTools protocol through a pair of pipes.

`--remote-debugging-pipe` needs no port and no WebSocket: Chromium reads commands from descriptor 3 and writes to 4,
each message JSON and a NUL.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_TIMEOUT_SECONDS = 60.0
_EXEC = """\
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """The path of a Chromium on this machine, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a headless Chromium. console: what the page logged, threw or had blocked, in order."""

    def __init__(self, path: str, profile: Path) -> None:
        command_end, self._commands = os.pipe()
        self._answers, answer_end = os.pipe()
        ends = (command_end, answer_end)
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
        ]
        options += ["--remote-debugging-pipe", "--disable-extensions", f"--user-data-dir={profile}"]
        wrapper = [sys.executable, "-c", _EXEC, *map(str, ends), path]
        self._log = (profile.parent / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            [*wrapper, *options],
            pass_fds=ends,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, "HOME": str(profile)},
        )
        for end in ends:
            os.close(end)
        self._buffer, self._next_id, self._session = b"", 0, ""
        self._loads, self.console = 0, list[str]()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in (self._commands, self._answers):
            os.close(end)  # Chromium ends when its pipe does
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def open(
        self, page: Path, *, width: int = 1200, height: int = 900, dark: bool = False, media: str = "screen"
    ) -> None:
        """Load a page from the disk, with a window of this size, and forget what the last one said."""
        self.console.clear()
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        loads = self._loads
        self._call("Page.navigate", url=page.resolve().as_uri())
        while self._loads == loads:
            self._note(self._read())

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key, such as ArrowRight, Tab or Escape."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def type(self, text: str) -> None:
        """Type into the element that has the focus."""
        self._call("Input.insertText", text=text)

    def point_at(self, selector: str) -> None:
        """Move the mouse over an element."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        x, y = self.run(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getClientRects()[0];"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        self.point_at(selector)
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def take_screenshot(self, path: Path, *, full: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._next_id += 1
        command: dict[str, Any] = {"id": self._next_id, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._next_id:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._answers, 1 << 20) if ready else b""
            assert data, f"Chromium gave no answer; it ended with {self._process.poll()}, see {self._log.name}"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def _note(self, message: dict[str, Any]) -> None:
        event, data = message.get("method"), message.get("params", {})
        self._loads += event == "Page.loadEventFired"
        if event == "Runtime.consoleAPICalled":
            self.console.append(f"console.{data['type']}: {data['args']}")
        elif event == "Runtime.exceptionThrown":
            self.console.append(f"thrown: {data['exceptionDetails']}")
        elif event == "Log.entryAdded":
            self.console.append(f"{data['entry']['level']}: {data['entry']['text']}")
