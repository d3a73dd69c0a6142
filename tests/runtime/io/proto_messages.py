"""Messages of Protobuf for tests, made without protoc."""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

_KINDS = descriptor_pb2.FieldDescriptorProto
_IMPORTS = (timestamp_pb2, duration_pb2, wrappers_pb2)

ORDER = [("id", "int64"), ("user", "string"), ("amount", "double"), ("paid", "bool"), ("data", "bytes")]


def add_fields(message: Any, fields: list[tuple[str, str]]) -> None:
    """Add fields to a message; `repeated`, `optional` or `oneof` may stand before a type."""
    for number, (name, kind) in enumerate(fields, 1):
        rule, _, kind = kind.rpartition(" ")
        label = _KINDS.LABEL_REPEATED if rule == "repeated" else _KINDS.LABEL_OPTIONAL
        field = message.field.add(name=name, number=number, label=label)
        if kind.startswith("."):
            field.type_name = kind
            field.type = _KINDS.TYPE_ENUM if kind.endswith("Color") else _KINDS.TYPE_MESSAGE
        else:
            field.type = getattr(_KINDS, f"TYPE_{kind.upper()}")
        if rule == "oneof":
            field.oneof_index = 0
        if rule == "optional":
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")


def classes_of(file: Any) -> dict[str, Any]:
    """The classes of the messages of a file, by their names without the package."""
    pool = descriptor_pool.DescriptorPool()
    for module in _IMPORTS:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    found = pool.FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(kind) for name, kind in found.items()}


def message_of(fields: list[tuple[str, str]], name: str = "Order") -> Any:
    """The class of a message."""
    file = new_file("order.proto")
    add_fields(file.message_type.add(name=name), fields)
    return classes_of(file)[name]


def new_file(name: str) -> Any:
    return descriptor_pb2.FileDescriptorProto(
        name=name,
        package="shop",
        syntax="proto3",
        dependency=[module.DESCRIPTOR.name for module in _IMPORTS],
    )


def every_kind() -> Any:
    """The class of a message with fields of every kind."""
    file = new_file("every.proto")
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    message = file.message_type.add(name="Every")
    add_fields(message.nested_type.add(name="In"), [("y", "int32"), ("z", "optional string")])
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add_fields(entry, [("key", "string"), ("value", "int64")])
    message.oneof_decl.add(name="either")
    plain = (
        "double float int64 uint64 int32 fixed64 fixed32 bool string bytes "
        "uint32 sfixed32 sfixed64 sint32 sint64"
    )
    add_fields(
        message,
        [
            *[(f"a_{kind}", kind) for kind in plain.split()],
            ("one", "oneof string"),
            ("other", "oneof int32"),
            ("optional", "optional int32"),
            ("numbers", "repeated sint64"),
            ("texts", "repeated string"),
            ("color", ".shop.Color"),
            ("inner", ".shop.Every.In"),
            ("inners", "repeated .shop.Every.In"),
            ("counts", "repeated .shop.Every.CountsEntry"),
            ("at", ".google.protobuf.Timestamp"),
            ("took", ".google.protobuf.Duration"),
            ("wrapped", ".google.protobuf.Int64Value"),
        ],
    )
    return classes_of(file)["Every"]
