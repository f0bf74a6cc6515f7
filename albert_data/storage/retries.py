"""What the answers of a store mean: above all, whether to try a request again, or to say in one line what is wrong.

botocore itself repeats a request a few times. It does not repeat a body that breaks off, and it gives up within
seconds, so requests are repeated here for minutes. A bucket that is missing, in another region or not permitted, and
credentials that are wrong, are never repeated: they raise StorageError. Messages hold no text of the store or of a
library, which might quote a URL with a password or a signature.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from albert_data.errors import StorageError
from albert_data.storage.sharing import SharedLock
from albert_data.storage.urls import StoreURL

RETRY_SECONDS = 300.0
# Of a store that never answered, as its address may be wrong; and after a request that was given up, since cleaning up
# is not worth the same wait again.
LOST_RETRY_SECONDS = 60.0
CONNECT_SECONDS = 10.0
_FIRST_WAIT_SECONDS, _SLOWEST_SECONDS = 0.2, 8.0
_SAID_AFTER_SECONDS = 3.0
_TRANSIENT_CODES = {
    *("InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout", "Throttling", "ThrottlingException"),
    *("RequestThrottled", "ConditionalRequestConflict", "OperationAborted", "BadDigest", "IncompleteBody"),
}
_TRANSIENT_STATUSES = {408, 409, 429, 500, 502, 503, 504}
# Exceptions of botocore and aiohttp, by name: none is imported before a store is used.
_TRANSIENT_ERRORS = {
    *("HTTPClientError", "ConnectionError", "IncompleteReadError", "ResponseParserError", "ClientError"),
    *("IncompleteRead", "FSTimeoutError", "ReadTimeoutError"),
}
_CREDENTIAL_CODES = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_REGION_CODES = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
NEW = "*"  # as the version of a put: only if there is no object
_log = logging.getLogger("albert_data")
Answer = TypeVar("Answer")


class Got(NamedTuple):
    """Some bytes of an object; the size and the version of the whole."""

    data: bytes
    num_bytes: int
    version: str


class _Refusal(NamedTuple):
    """An answer that is an error. code: as the store names it; region: that of the bucket, where it says so."""

    code: str
    status: int
    region: str | None


class PreconditionFailed(Exception):
    """A conditional request was not carried out: the object is another one than the condition names."""


def _find_refusal(error: BaseException) -> _Refusal | None:
    """The store's answer in an error of botocore or s3fs; None if it gave none."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict) and "Error" in response:
            meta = response.get("ResponseMetadata", {})
            region = response["Error"].get("Region") or meta.get("HTTPHeaders", {}).get("x-amz-bucket-region")
            return _Refusal(str(response["Error"].get("Code", "")), int(meta.get("HTTPStatusCode", 0)), region)
    return None


class Connection:
    """Connects each process to one store, and repeats its requests. Threads of a process share the client."""

    def __init__(self, read_seconds: float) -> None:
        """read_seconds: without a byte of an answer; then a request is repeated."""
        self.read_seconds, self._connecting = read_seconds, SharedLock()
        # Neither sockets nor threads survive a fork, so each process has its own. Those of the parent stay referenced:
        # a destructor would close its sockets.
        self._by_process: dict[int, Any] = {}
        self._answers = False  # whether the last request had an answer

    def _connect(self) -> Any:
        """Make a client, which takes up to seconds."""
        raise NotImplementedError

    def client(self) -> Any:
        with self._connecting.hold():
            if (found := self._by_process.get(os.getpid())) is None:
                found = self._by_process[os.getpid()] = self._connect()
            return found

    def repeat(self, url: StoreURL, request: Callable[[], Answer]) -> Answer:
        """Make a request until the store answers it.

        Raises FileNotFoundError where there is no object, OSError for a range behind its end, PreconditionFailed, and
        StorageError for all else. So a store that fails is never taken for one without the object.
        """
        try:
            return self._repeat(url, request)
        except StorageError:  # perhaps wrong settings, which the next connection reads again
            self._by_process.pop(os.getpid(), None)
            raise

    def _repeat(self, url: StoreURL, request: Callable[[], Answer]) -> Answer:
        begin, is_said, longest = time.monotonic(), False, _FIRST_WAIT_SECONDS
        while True:
            try:
                answer = request()
                self._answers = True
                return answer
            except Exception as error:  # of botocore, aiohttp, s3fs or the system, which have no class in common
                refusal = _find_refusal(error)
                self._answers |= refusal is not None and refusal.status < 500
                if not _is_transient(error, refusal):
                    raise _explain(error, refusal, url) from error
                reason = refusal.code if refusal else type(error).__name__
            wait = longest * random.uniform(0.5, 1.0)  # random, so that workers do not all return at once
            longest = min(2 * longest, _SLOWEST_SECONDS)
            seconds = time.monotonic() - begin
            limit = RETRY_SECONDS if self._answers else LOST_RETRY_SECONDS
            if seconds + wait > limit:
                self._answers = False
                raise StorageError(
                    f"{url}: the store gave no answer for {seconds:.0f} s ({reason}); check the network and the "
                    "address of the store, and give the same command again"
                )
            if not is_said and seconds + wait > _SAID_AFTER_SECONDS:
                is_said = True
                _log.warning("%s gives no answer (%s); trying again for up to %.0f s", url, reason, limit)
            time.sleep(wait)


def _is_transient(error: Exception, refusal: _Refusal | None) -> bool:
    if refusal is not None:
        return refusal.code in _TRANSIENT_CODES or refusal.status in _TRANSIENT_STATUSES
    if isinstance(error, ConnectionError | TimeoutError | asyncio.TimeoutError):
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    if "SSLError" in names:  # also of a connection that ends while it is being made
        return "CERTIFICATE_VERIFY_FAILED" not in str(error)
    return not names.isdisjoint(_TRANSIENT_ERRORS)


def _explain(error: Exception, refusal: _Refusal | None, url: StoreURL) -> Exception:
    bucket = str(url._replace(key=""))
    if refusal is None:
        names = [kind.__name__ for kind in type(error).__mro__]
        reason = next((_NO_ANSWER[name] for name in names if name in _NO_ANSWER), names[0])
        return StorageError(f"{bucket} can't be reached: {reason}")
    code, status = refusal.code, refusal.status
    if status == 412 or code == "PreconditionFailed":
        return PreconditionFailed(str(url))
    if code == "NoSuchBucket":
        return StorageError(f"bucket {bucket} does not exist; check its name and the address of the store")
    if status == 404 or code in ("NoSuchKey", "404", "NoSuchUpload"):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(url))
    if status in (301, 307) or code in _REGION_CODES:
        where = f"in the region {refusal.region}" if refusal.region else "in another region"
        return StorageError(f"bucket {bucket} lies {where}; set AWS_REGION to its region")
    if status == 401 or code in _CREDENTIAL_CODES:
        return StorageError(
            f"{bucket}: the store does not accept the credentials ({code or status}); renew or correct them"
        )
    if status == 403:
        return StorageError(
            f"{url}: the store does not permit that ({code or status}); grant these credentials reading, writing, "
            "listing and deleting as docs/guides/stores.md lists them"
        )
    if status == 416:
        return OSError(errno.EINVAL, "the range of bytes lies behind the end of the object", str(url))
    return StorageError(f"{url}: the store refused the request ({code or status})")


_NO_ANSWER = {
    "NoCredentialsError": "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE "
    "(see docs/guides/stores.md)",
    "PartialCredentialsError": "half of the credentials is missing; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "ProfileNotFound": "there is no such profile; check AWS_PROFILE",
    "SSLError": "its certificate is not accepted; check the address of the store",
    "ValueError": "its address or another setting is not valid; check AWS_ENDPOINT_URL",
}
