"""The JSON protocol: `X-Amz-Target: AmazonSQS.SendMessage` and a body of JSON, version 1.0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from qframe.web.gateway.sqs.refusals import SqsRefusal, missing
from qframe.web.gateway.sqs.requests import Request

MEDIA_TYPE: Final = "application/x-amz-json-1.0"
TARGET: Final = "AmazonSQS."

_missing_field = re.compile(r"missing required field `(\w+)`").search


def converted(fields: Any, kind: type[Request], *, strict: bool = True) -> Request:
    """The fields of a request as the request; unless it is strict, texts are numbers too.

    Raises:
        SqsRefusal: if one is missing or of another type.
    """
    try:
        return msgspec.convert(fields, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise _refused(error) from None


def request_of(body: bytes, kind: type[Request]) -> Request:
    """A request from its body.

    Raises:
        SqsRefusal: if it is no JSON, a field is missing or of another type.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _refused(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SqsRefusal("SerializationException", "The request's body is no JSON.") from None


def answer_of(answer: Mapping[str, Any]) -> bytes:
    """The body of an answer; bytes become base 64."""
    return msgspec.json.encode(answer)


def refusal_of(refusal: SqsRefusal) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a refusal."""
    body = {"__type": f"com.amazonaws.sqs#{refusal.shape}", "message": refusal.message}
    return msgspec.json.encode(body), {"x-amzn-query-error": f"{refusal.code};{refusal.fault}"}


def _refused(error: msgspec.ValidationError) -> SqsRefusal:
    found = _missing_field(str(error))
    if found is not None:
        return missing(found[1])
    return SqsRefusal("SerializationException", f"The request cannot be read: {error}.")
