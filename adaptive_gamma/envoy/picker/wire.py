"""The messages of Envoy's ext_proc and of gRPC's health service, as far as the picker uses them.

The wire carries numbers, no names of messages: only the method's path and the fields' numbers must be those of
``envoy/service/ext_proc/v3/external_processor.proto`` and ``grpc/health/v1/health.proto``. So the messages are
described here, under names of our own in a pool of their own, and nothing is installed beside protobuf that could clash
with another copy of Envoy's files.

What others write as ``string`` where bytes of any kind may come (values of headers) is ``bytes`` here: the same on the
wire, and no value can make a message unreadable.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = [
    "EXT_PROC_SERVICE",
    "HEALTH_SERVICE",
    "BodyMode",
    "HealthCheckRequest",
    "HealthCheckResponse",
    "ProcessingRequest",
    "ProcessingResponse",
]

EXT_PROC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
HEALTH_SERVICE = "grpc.health.v1.Health"
_PACKAGE = "adaptive_gamma.picker"


class BodyMode:
    """``ProcessingMode.BodySendMode``: how a gateway sends a body."""

    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX_STREAMED = 4


_MESSAGES: dict[str, str] = {
    "HeaderValue": "key:1:string value:2:bytes raw_value:3:bytes",
    "HeaderMap": "headers:1:*HeaderValue",
    "HeaderValueOption": "header:1:HeaderValue append_action:3:int32",
    "ListValue": "values:1:*Value",
    "Value": "number_value:2:double:kind string_value:3:string:kind struct_value:5:Struct:kind "
    "list_value:6:ListValue:kind",
    "Struct": "fields:1:{Value",
    "Metadata": "filter_metadata:1:{Struct",
    "ProtocolConfiguration": "request_body_mode:1:int32 response_body_mode:2:int32",
    "HttpHeaders": "headers:1:HeaderMap end_of_stream:3:bool",
    "HttpBody": "body:1:bytes end_of_stream:2:bool",
    "HttpTrailers": "trailers:1:HeaderMap",
    "ProcessingRequest": "request_headers:2:HttpHeaders:request response_headers:3:HttpHeaders:request "
    "request_body:4:HttpBody:request response_body:5:HttpBody:request request_trailers:6:HttpTrailers:request "
    "response_trailers:7:HttpTrailers:request metadata_context:8:Metadata protocol_config:11:ProtocolConfiguration",
    "HeaderMutation": "set_headers:1:*HeaderValueOption remove_headers:2:*string",
    "StreamedBodyResponse": "body:1:bytes end_of_stream:2:bool",
    "BodyMutation": "body:1:bytes:mutation clear_body:2:bool:mutation "
    "streamed_response:3:StreamedBodyResponse:mutation",
    "CommonResponse": "status:1:int32 header_mutation:2:HeaderMutation body_mutation:3:BodyMutation "
    "clear_route_cache:5:bool",
    "HeadersResponse": "response:1:CommonResponse",
    "BodyResponse": "response:1:CommonResponse",
    "TrailersResponse": "header_mutation:1:HeaderMutation",
    "HttpStatus": "code:1:int32",
    "ImmediateResponse": "status:1:HttpStatus headers:2:HeaderMutation body:3:bytes details:5:string",
    "ProcessingResponse": "request_headers:1:HeadersResponse:response response_headers:2:HeadersResponse:response "
    "request_body:3:BodyResponse:response response_body:4:BodyResponse:response "
    "request_trailers:5:TrailersResponse:response response_trailers:6:TrailersResponse:response "
    "immediate_response:7:ImmediateResponse:response dynamic_metadata:8:Struct",
    "HealthCheckRequest": "service:1:string",
    "HealthCheckResponse": "status:1:int32",
}
"""Fields as ``name:number:type``: ``*`` before a repeated type, ``{`` before the values of a map from strings, a fourth
part names the oneof."""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "double": _Field.TYPE_DOUBLE,
    "int32": _Field.TYPE_INT32,
    "string": _Field.TYPE_STRING,
}


def _describe(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"


def _add_map(message: Any, field: Any, kind: str) -> None:
    """A map is a repeated message of keys and values, marked so."""
    entry = message.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    for name, number, of in (("key", 1, "string"), ("value", 2, kind)):
        _describe(entry.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL), of)
    field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{message.name}.{entry.name}"


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="adaptive_gamma/picker.proto", package=_PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        oneofs: dict[str, int] = {}
        for text in fields.split():
            name, number, kind, *oneof = text.split(":")
            repeated = kind[0] in "*{"
            label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            field = message.field.add(name=name, number=int(number), label=label)
            if kind[0] == "{":
                _add_map(message, field, kind[1:])
            else:
                _describe(field, kind.lstrip("*"))
            if oneof:
                if oneof[0] not in oneofs:
                    oneofs[oneof[0]] = len(oneofs)
                    message.oneof_decl.add(name=oneof[0])
                field.oneof_index = oneofs[oneof[0]]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_made = _classes()
ProcessingRequest: Any = _made["ProcessingRequest"]
ProcessingResponse: Any = _made["ProcessingResponse"]
HealthCheckRequest: Any = _made["HealthCheckRequest"]
HealthCheckResponse: Any = _made["HealthCheckResponse"]
