"""The front itself: requests of both protocols to operations, and their answers back."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from uuid import uuid4

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.errors import (
    BadInput,
    CoordinatorUnavailable,
    PublishUnknown,
    QFrameError,
    StoreFull,
    StoreUnavailable,
    UnknownGroup,
    UnknownTopic,
)
from qframe.web.gateway.asking import begin_request
from qframe.web.gateway.callers import Callers, NotKnown, TooMuch
from qframe.web.gateway.forwarding import Forwarder
from qframe.web.gateway.gateway import Gateway, GatewayFull, GatewayStopped
from qframe.web.gateway.problem_json import BadRequest
from qframe.web.gateway.request_parts import read_body
from qframe.web.gateway.routes import MOST_BYTES
from qframe.web.gateway.sqs import json_protocol, query_protocol, requests
from qframe.web.gateway.sqs.message_verbs import MessageVerbs
from qframe.web.gateway.sqs.move_verbs import MoveVerbs
from qframe.web.gateway.sqs.names import Place
from qframe.web.gateway.sqs.permission_verbs import PermissionVerbs
from qframe.web.gateway.sqs.queue_verbs import QueueVerbs
from qframe.web.gateway.sqs.refusals import (
    SqsRefusal,
    invalid_value,
    no_queue,
    throttled,
    unavailable,
    unsupported,
)
from qframe.web.gateway.sqs.requests import Request
from qframe.web.gateway.sqs.service import SqsCall, SqsService

_ACCESS_KEY: Final = re.compile(r"Credential=([^/,\s]{1,200})/")
_READING: Final = ("Get", "List")  # how the names of operations begin that change nothing
_COUNT_THEMSELVES: Final = (
    requests.SendMessage, requests.SendMessageBatch, requests.ReceiveMessage,
)  # fmt: skip
_SETTLE: Final = (
    requests.ChangeMessageVisibility, requests.ChangeMessageVisibilityBatch,
    requests.DeleteMessage, requests.DeleteMessageBatch,
)  # fmt: skip
_ACCESS_KEY_REMEDY: Final = "give one as the access key, AWS_ACCESS_KEY_ID"

Operation = Callable[[Any, SqsCall], Awaitable[dict[str, Any]]]


class SqsFront:
    """Serves the queues of a gateway to clients of SQS, as one endpoint.

    Args:
        gateway: publishes, pulls, settles.
        callers: finds out who calls, by the access key of a request.
        forwarder: passes settlements on to other gateways.
        place: the region and the account that stand in ARNs and addresses.
        most_bytes: the largest request.
        clock: for times of queues.
    """

    def __init__(
        self,
        gateway: Gateway,
        callers: Callers,
        forwarder: Forwarder,
        *,
        place: Place | None = None,
        most_bytes: int = MOST_BYTES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._gateway = gateway
        self._callers = callers
        self._most_bytes = most_bytes
        self.service: SqsService = SqsService(
            gateway, forwarder, place=place or Place(), clock=clock
        )
        queues, messages = QueueVerbs(self.service), MessageVerbs(self.service)
        moves, permissions = MoveVerbs(self.service), PermissionVerbs(self.service)
        self._operations: dict[str, tuple[type[Request], Operation]] = {
            "AddPermission": (requests.AddPermission, permissions.permit),
            "CancelMessageMoveTask": (requests.CancelMessageMoveTask, moves.cancel),
            "ChangeMessageVisibility": (requests.ChangeMessageVisibility, messages.change),
            "ChangeMessageVisibilityBatch": (
                requests.ChangeMessageVisibilityBatch, messages.change_batch
            ),
            "CreateQueue": (requests.CreateQueue, queues.create),
            "DeleteMessage": (requests.DeleteMessage, messages.delete),
            "DeleteMessageBatch": (requests.DeleteMessageBatch, messages.delete_batch),
            "DeleteQueue": (requests.OnQueue, queues.delete),
            "GetQueueAttributes": (requests.GetQueueAttributes, queues.attributes),
            "GetQueueUrl": (requests.GetQueueUrl, queues.url),
            "ListDeadLetterSourceQueues": (requests.ListDeadLetterSourceQueues, queues.sources),
            "ListMessageMoveTasks": (requests.ListMessageMoveTasks, moves.list_moves),
            "ListQueueTags": (requests.OnQueue, queues.tags),
            "ListQueues": (requests.ListQueues, queues.list_queues),
            "PurgeQueue": (requests.OnQueue, queues.purge),
            "ReceiveMessage": (requests.ReceiveMessage, messages.receive),
            "RemovePermission": (requests.RemovePermission, permissions.forbid),
            "SendMessage": (requests.SendMessage, messages.send),
            "SendMessageBatch": (requests.SendMessageBatch, messages.send_batch),
            "SetQueueAttributes": (requests.SetQueueAttributes, queues.set),
            "StartMessageMoveTask": (requests.StartMessageMoveTask, moves.start),
            "TagQueue": (requests.TagQueue, queues.tag),
            "UntagQueue": (requests.UntagQueue, queues.untag),
        }  # fmt: skip

    def routes(self) -> list[Route]:
        """Its routes: the gateway's own address, and that of each queue."""
        methods = ["GET", "POST"]
        return [
            Route("/", self.answer, methods=methods),
            Route("/{account}/{queue}", self.answer, methods=methods),
        ]

    async def answer(self, request: HttpRequest) -> Response:
        """Answers a request."""
        target = request.headers.get("x-amz-target")
        request_id = str(uuid4())
        headers = {"x-amzn-requestid": request_id}
        try:
            if target is not None:
                return await self._by_json(request, target, headers)
            return await self._by_query(request, request_id, headers)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it

    async def _by_json(
        self, request: HttpRequest, target: str, headers: dict[str, str]
    ) -> Response:
        try:
            call = self._call(request)
            await begin_request(call.caller.client)
            name = target.removeprefix(json_protocol.TARGET)
            kind, operation = self._operation(name if name != target else "", request)
            most_bytes = call.caller.most_bytes(self._most_bytes)
            read = json_protocol.request_of(await read_body(request, most_bytes), kind)
            body = json_protocol.answer_of(await self._tried(operation, read, call))
            status = 200
        except (SqsRefusal, BadRequest, TooMuch) as error:
            refusal = _as_refusal(error)
            body, more = json_protocol.refusal_of(refusal)
            headers, status = {**headers, **more}, refusal.status
        return Response(body, status, headers, media_type=json_protocol.MEDIA_TYPE)

    async def _by_query(
        self, request: HttpRequest, request_id: str, headers: dict[str, str]
    ) -> Response:
        try:
            call = self._call(request)
            await begin_request(call.caller.client)
            body = await read_body(request, call.caller.most_bytes(self._most_bytes))
            fields = query_protocol.fields_of(request.url.query, body)
            name = fields.pop("Action", "")
            kind, operation = self._operation(name, request)
            structure = query_protocol.structured(fields, name)
            if "queue_url" in kind.__struct_fields__:
                structure.setdefault("QueueUrl", request.url.path)
            read = json_protocol.converted(structure, kind, strict=False)
            answer = await self._tried(operation, read, call)
            body, status = query_protocol.answer_of(name, answer, request_id), 200
        except (SqsRefusal, BadRequest, TooMuch) as error:
            refusal = _as_refusal(error)
            body, status = query_protocol.refusal_of(refusal, request_id), refusal.status
        return Response(body, status, headers, media_type=query_protocol.MEDIA_TYPE)

    def _operation(self, name: str, request: HttpRequest) -> tuple[type[Request], Operation]:
        """An operation, where the request may ask for it.

        One that changes something is asked for by POST: a page of another site, or a mail, can have
        a browser send all else, as the address of an image.
        """
        found = self._operations.get(name)
        if found is None:
            raise SqsRefusal(
                "InvalidAction" if name else "MissingAction",
                f"There is no operation {name[:80]!r}." if name else "The request names no action.",
            )
        if request.method != "POST" and not name.startswith(_READING):
            raise unsupported(f"{name} may change something, so it is asked for by POST.")
        return found

    def _call(self, request: HttpRequest) -> SqsCall:
        found = _ACCESS_KEY.search(request.headers.get("authorization", ""))
        token = found[1] if found is not None else request.query_params.get("AWSAccessKeyId", "")
        try:
            caller = self._callers.caller_of(request, token, remedy=_ACCESS_KEY_REMEDY)
        except NotKnown as error:
            raise SqsRefusal("InvalidClientTokenId", str(error), status=403) from None
        # A client that names a scheme that is not the one it used fools itself alone.
        scheme = request.headers.get("x-forwarded-proto", "")
        scheme = scheme if scheme in ("http", "https") else request.url.scheme
        base = f"{scheme}://{request.headers.get('host') or request.url.netloc}"
        return SqsCall(base=base, caller=caller, token=token, request=request)

    async def _tried(self, operation: Operation, read: Request, call: SqsCall) -> Mapping[str, Any]:
        """The answer of an operation; what qframe refuses is refused in the words of SQS.

        Each counts against the client's rate, but for those that settle: what it has it may end.
        """
        try:
            if not isinstance(read, _COUNT_THEMSELVES + _SETTLE):
                call.caller.take(1)
            return await operation(read, call)
        except (UnknownTopic, UnknownGroup):
            raise no_queue() from None
        except (GatewayStopped, StoreUnavailable, CoordinatorUnavailable, PublishUnknown) as error:
            raise unavailable(str(error)) from None
        except (StoreFull, GatewayFull, TooMuch) as error:
            raise throttled(str(error)) from None
        except BadInput as error:
            raise invalid_value(str(error)) from None
        except QFrameError as error:
            self._failed(error)
            raise unavailable(str(error)) from None
        except Exception as error:
            if isinstance(error, SqsRefusal):
                raise
            self._failed(error)
            raise SqsRefusal(
                "InternalFailure", "The gateway has failed at this request.", status=500,
                of_sender=False,
            ) from None  # fmt: skip

    def _failed(self, error: Exception) -> None:
        if self._gateway.app.events:
            self._gateway.app.events.emit("http.failed", path="sqs", error=error)


def _as_refusal(error: SqsRefusal | BadRequest | TooMuch) -> SqsRefusal:
    if isinstance(error, SqsRefusal):
        return error
    if isinstance(error, TooMuch):
        return throttled(str(error))
    return SqsRefusal("MalformedInput", str(error), status=error.status)
