"""Prints what the requests of an SDK version can say, as JSON: {class: [path of a field]}.

Runs in the environment of the version. A path leads through objects: "sampling_params.stop". The classes are those of
tinker.types whose name ends with Request, and the protobuf message of forward_backward.
"""
import dataclasses
import importlib
import inspect
import json
import pkgutil
import typing
import warnings

warnings.simplefilter("ignore")

from tinker import types  # noqa: E402


def modules():
    for found in pkgutil.walk_packages(types.__path__, types.__name__ + "."):
        try:
            yield importlib.import_module(found.name)
        except ImportError:
            continue


def fields_of(model):
    """Returns the types of the fields of a pydantic model or a dataclass, by name; empty for anything else."""
    if not inspect.isclass(model):
        return {}
    if hasattr(model, "model_fields"):
        return {name: field.annotation for name, field in model.model_fields.items()}
    if dataclasses.is_dataclass(model):
        try:
            return typing.get_type_hints(model)
        except (NameError, TypeError):
            return {field.name: field.type for field in dataclasses.fields(model)}
    return {}


def objects_in(annotation):
    """Returns the classes with fields that stand in a type, through Optional, unions, lists and annotations."""
    found = [] if not fields_of(annotation) else [annotation]
    for argument in typing.get_args(annotation):
        found += objects_in(argument)
    return found


def paths(model, prefix="", outer=()):
    found = []
    for name, annotation in fields_of(model).items():
        found.append(prefix + name)
        for inner in objects_in(annotation):
            if inner not in outer:
                found += paths(inner, prefix + name + ".", (*outer, inner))
    return found


def main():
    requests = {}
    for module in modules():
        for name, model in vars(module).items():
            if name.endswith("Request") and fields_of(model):
                requests[name] = sorted(set(paths(model)))
    from tinker.proto import tinker_public_pb2 as proto
    message = proto.ForwardBackwardRequest.DESCRIPTOR

    def numbers(descriptor, prefix, outer):
        found = []
        for field in descriptor.fields:
            found.append(f"{prefix}{field.name}={field.number}")
            inner = field.message_type
            if inner is not None and inner.full_name not in outer:
                found += numbers(inner, f"{prefix}{field.name}.", (*outer, inner.full_name))
        return found
    requests["protobuf ForwardBackwardRequest"] = numbers(message, "", (message.full_name,))
    print(json.dumps(requests, indent=1, sort_keys=True))


main()
