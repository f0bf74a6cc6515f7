"""The report in a real Chromium: it runs without a complaint, and its filters, keys and hints work."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_inspect_html import ARABIC, write_hostile

from albert_data.inspect.choice import RowChoice
from albert_data.inspect.html.page import render
from albert_data.inspect.report import inspect_folder

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATH = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.skipif(PATH is None, reason="no Chromium here: apt-get install chromium"),
    pytest.mark.slow,
]
TITLE = "document.getElementById('row-title').textContent"
PLACE = "document.getElementById('place').textContent"
TIP = "document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent"
_TIMEOUT_SECONDS = 60.0


class Browser:
    """One page of a headless Chromium, driven over its DevTools protocol through a pair of pipes.

    `--remote-debugging-pipe` needs no port and no WebSocket: Chromium reads commands from descriptor 3 and writes to 4,
    each message JSON and a NUL. console: what the page logged, threw or had blocked, in order.
    """

    def __init__(self, path: str, profile: Path) -> None:
        command_end, self._commands = os.pipe()
        self._answers, answer_end = os.pipe()
        ends = (command_end, answer_end)
        options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars"
        options += f" --remote-debugging-pipe --disable-extensions --user-data-dir={profile}"
        wrapper = ["bash", "-c", f'exec "$0" "$@" 3<&{command_end} 4>&{answer_end}', path]
        self._log = (profile.parent / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            [*wrapper, *options.split()],
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

    def __exit__(self, *_: object) -> None:
        for end in (self._commands, self._answers):
            os.close(end)
        self._process.kill()
        self._process.wait()
        self._log.close()

    def open(self, page: Path, *, width: int = 1200, dark: bool = False, media: str = "screen") -> None:
        """Load a page from the disk, with a window of this width, and forget what the last one said."""
        self.console.clear()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        loads = self._loads
        self._call("Page.navigate", url=page.resolve().as_uri())
        while self._loads == loads:
            self._note(self._read())

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
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

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


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = write_hostile(tmp_path_factory.mktemp("shards") / "<b onclick=hacked()>shards")
    path = folder.parent / "report.html"
    path.write_text(render(inspect_folder(folder, split="train", choice=RowChoice(count=300))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator[Browser]:
    assert PATH is not None
    with Browser(PATH, tmp_path_factory.mktemp("browser") / "profile") as browser:
        yield browser


@pytest.fixture
def opened(chromium: Browser, page: Path) -> Iterator[Browser]:
    """The page freshly loaded; at the end, nothing was logged, thrown or blocked, and nothing of the corpus ran."""
    chromium.open(page)
    yield chromium
    assert chromium.run("typeof window.hacked") == "undefined"
    assert chromium.console == []


def set_field(browser: Browser, field: str, value: str) -> None:
    browser.run(
        f"(() => {{ const f = document.getElementById('{field}'); f.value = {value!r};"
        " f.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def list_rows(browser: Browser) -> list[str]:
    """The titles of all rows that match, by stepping through them."""
    titles = [browser.run(TITLE)] if "of" in browser.run(PLACE) else []
    while browser.run("document.getElementById('next').getAttribute('aria-disabled')") == "false":
        browser.click("#next")
        titles.append(browser.run(TITLE))
    return titles


def test_each_filter_changes_the_rows_shown(opened):
    everything = list_rows(opened)
    assert len(set(everything)) == len(everything) > 10
    for value, says in (("0", ": in order."), ("1", ": swapped"), ("-1", ": no segment B.")):
        set_field(opened, "label", value)
        assert sorted(list_rows(opened)) == sorted(title for title in everything if says in title) != []
    set_field(opened, "label", "")
    lens = {title: int(title.split(" tokens")[0].split(". ")[1]) for title in everything}
    set_field(opened, "shortest", "50")
    assert list_rows(opened) == [title for title in everything if lens[title] >= 50] != everything
    set_field(opened, "longest", "100")
    assert list_rows(opened) == [title for title in everything if 50 <= lens[title] <= 100]
    set_field(opened, "shortest", "")
    set_field(opened, "longest", "")
    assert list_rows(opened) == everything


@pytest.mark.quick
def test_text_is_sought_as_one_types_and_none_found_is_said(opened):
    opened.run("document.getElementById('text').focus()")
    opened.type("RIVER")
    found = list_rows(opened)
    assert 0 < len(found) < 10
    opened.type(" nowhere")
    assert opened.run(PLACE) == "no row matches"
    assert opened.run("document.getElementById('row').hidden")


def test_arrow_keys_step_but_not_while_one_types(opened):
    first = opened.run(TITLE)
    opened.press("ArrowRight")
    second = opened.run(TITLE)
    assert (second != first, opened.run(PLACE)[:2]) == (True, "2 ")
    opened.press("ArrowLeft")
    assert opened.run(TITLE) == first
    opened.press("ArrowLeft")
    assert opened.run(TITLE) == first
    opened.run("document.getElementById('text').focus()")
    opened.press("ArrowRight")
    assert opened.run(TITLE) == first


def go_to_masked(browser: Browser) -> str:
    """A row with masked tokens; what stood at the first of them."""
    while not browser.run("!!document.querySelector('.token.masked')"):
        browser.press("ArrowRight")
    original: str = browser.run("document.querySelector('.token.masked').dataset.original")
    return original


def test_the_mouse_over_a_masked_token_shows_what_stood_there(opened):
    original = go_to_masked(opened)
    assert opened.run(TIP) == ""
    opened.point_at(".token.masked")
    assert opened.run(TIP) == f"{original}masked"
    assert opened.run("document.querySelector('.token.masked').getAttribute('aria-describedby')") == "tip"
    opened.point_at("#row-title")
    assert opened.run(TIP) == ""


def test_the_keyboard_reaches_a_masked_token_and_shows_what_stood_there(opened):
    go_to_masked(opened)
    opened.run("document.getElementById('reveal').focus()")
    opened.press("Tab")
    assert opened.run("document.activeElement.classList.contains('token')")
    assert opened.run(TIP).startswith(opened.run("document.activeElement.dataset.original"))
    opened.press("Escape")
    assert opened.run(TIP) == ""


def test_all_that_is_hidden_can_be_shown_at_once(opened):
    original = go_to_masked(opened)
    token = "document.querySelector('.token.masked').textContent"
    assert opened.run(token) == "[MASK]"
    opened.click("#reveal")
    assert opened.run(token) == f"[MASK:{original}]"


def test_text_of_the_corpus_makes_no_element(opened):
    set_field(opened, "text", "</sc")
    assert "of" in opened.run(PLACE)
    inside = "[...document.querySelectorAll('#segments *')].map(e => e.tagName)"
    assert set(opened.run(inside)) <= {"DIV", "SPAN", "P", "BDI"}
    assert opened.run("document.querySelectorAll('script, img, b').length") == 2


def test_right_to_left_text_runs_from_the_right(opened):
    set_field(opened, "text", ARABIC.split()[3])
    assert "of" in opened.run(PLACE)
    direction = "getComputedStyle(document.querySelector('#segments p')).direction"
    assert opened.run(direction) == "rtl"
    set_field(opened, "text", "river")
    assert opened.run(direction) == "ltr"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_fits_its_window_light_and_dark(opened, page, width, dark):
    opened.open(page, width=width, dark=dark)
    assert opened.run("document.documentElement.scrollWidth") <= width
    shades = opened.run(
        "[document.body, document.querySelector('.fill-ink')].map((e, i) => "
        "getComputedStyle(e)[i ? 'fill' : 'backgroundColor'].match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0))"
    )
    assert (shades[0] < 200 and shades[1] > 600) if dark else (shades[0] > 600 and shades[1] < 200)
