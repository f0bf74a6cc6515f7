"""A command's options into the settings of the library."""

from __future__ import annotations

import dataclasses
from typing import Any

from albert_data.config import BuildConfig, ExampleConfig, TextConfig


def text_config(options: dict[str, Any]) -> TextConfig:
    """Take the options of TextConfig out of `options`."""
    return TextConfig(**_take(options, TextConfig))


def build_config(options: dict[str, Any]) -> BuildConfig:
    """Take all options of a build out of `options`."""
    text, examples = text_config(options), ExampleConfig(**_take(options, ExampleConfig))
    return BuildConfig(text=text, examples=examples, **_take(options, BuildConfig))


def _take(options: dict[str, Any], config: type[Any]) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(config)]
    return {name: options.pop(name) for name in names if name in options}
