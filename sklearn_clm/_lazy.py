"""Names of a package whose modules are imported when the names are first used."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: dict[str, list[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package, from its modules and the names they define."""
    module_of = {name: module for module, names in modules.items() for name in names}

    def get_attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)  # so that this is asked once
        return value

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get_attribute, directory
