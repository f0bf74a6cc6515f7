"""What a manifest says of the text itself, licence and languages, as cards of shards, conversions and models have it.

Source of the metadata: huggingface.co/docs/hub/datasets-cards.
"""

from __future__ import annotations

import re
from typing import Any

from albert_data.config import DEFAULT_TEXT
from albert_data.languages import UNDETERMINED, is_language, list_languages, normalise_language
from albert_data.shards.manifest import Manifest

LICENSE_ID = re.compile(r"[A-Za-z0-9.+-]{1,64}")


def describe_text(manifest: Manifest, **given: Any) -> dict[str, Any]:
    """The metadata `license` and `language`, as far as the user named them. given: values in place of these.

    The Hub knows licences by ids in lower case; any other is described in words.
    """
    facts, license = dict[str, Any](), None if "license" in given else manifest.license
    if license is not None:
        is_id = LICENSE_ID.fullmatch(license)
        facts = {"license": license.lower()} if is_id else {"license": "other", "license_details": license}
    codes = [code for code in list_codes(manifest) if code != UNDETERMINED]
    return facts | ({"language": codes} if codes and is_language_named(manifest) else {}) | given


def list_codes(manifest: Manifest) -> list[str]:
    """The languages whose text is in the rows, as the settings or the records name them, by code or in English."""
    if manifest.mixture is not None and manifest.plan.mixture is not None:
        found = [one.language for one in manifest.mixture if one.num_used_documents]
    else:
        by_name = {name: code for code, name in list_languages().items() if len(code) == 2}
        names = [by_name.get(name, name) for name in manifest.sources or (manifest.config.text.language,)]
        found = [name for name in names if is_language(name)]
    return list(dict.fromkeys(map(normalise_language, found)))


def is_language_named(manifest: Manifest) -> bool:
    """False where all text has the default language, and nobody said that it is in that."""
    is_by_record = manifest.sources is not None and manifest.plan.mixture is None
    return is_by_record or bool(manifest.language_named) or list_codes(manifest) != [DEFAULT_TEXT.language]
