"""Answers that say why there is no other: the document of an error, as commands print it."""

from __future__ import annotations

import json
import shlex
from http import HTTPStatus
from typing import Any

from paceline.documents.failures import failure_document, hint_for
from paceline.error_codes import ErrorCode
from paceline.errors import AuthenticationFailed, AuthorizationFailed, PacelineError
from paceline_node.http.page import Page
from paceline_node.security import refusals
from paceline_node.security.principals import ANONYMOUS, Principal, ResourceKind

LOG_IN = (
    "send 'Authorization: Bearer TOKEN'; an administrator makes a token by "
    "'paceline user token NAME'"
)
_STATUSES = {
    ErrorCode.AUTHENTICATION_FAILED: HTTPStatus.UNAUTHORIZED,
    ErrorCode.AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: HTTPStatus.NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.INVALID_REQUEST: HTTPStatus.BAD_REQUEST,
    ErrorCode.REQUEST_TIMED_OUT: HTTPStatus.GATEWAY_TIMEOUT,
    ErrorCode.UNKNOWN_SERVER_ERROR: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def error_document(error: PacelineError) -> dict[str, Any]:
    """Why a request fails, and what to do."""
    return failure_document(error.code.name, str(error) or type(error).__name__, _hint(error))


def problem(status: HTTPStatus, message: str, hint: str = "") -> Page:
    """An answer of that status, which is none of the broker's own errors."""
    return _page(status, failure_document(status.name, message, hint))


def _page(status: HTTPStatus, document: dict[str, Any]) -> Page:
    return Page(json.dumps(document).encode() + b"\n", "application/json", status)


def problem_of(error: PacelineError) -> Page:
    """The answer to a request that fails so; what the state of things refuses is 503: the same may
    succeed later."""
    status = _STATUSES.get(error.code, HTTPStatus.SERVICE_UNAVAILABLE)
    return _page(status, error_document(error))


def left_out(kind: ResourceKind, principal: Principal) -> str:
    """What lists tell those who may not see all. Whether there are any is not told."""
    who, of = str(principal), kind.value
    more = (
        LOG_IN
        if who == ANONYMOUS.name
        else "an administrator allows more: paceline acl create --principal "
        f"{shlex.quote(who)} --operation describe --{of} NAME"
    )
    return f"{of}s that {who} may not describe are left out: {more}"


def _hint(error: PacelineError) -> str:
    if isinstance(error, AuthorizationFailed | AuthenticationFailed):
        return refusals.what_to_do(str(error), log_in=LOG_IN)
    return hint_for(error.code)
