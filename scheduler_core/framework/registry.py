"""Registry of plugins by name: the built-in plugins and those of installed distributions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points

from scheduler_core.errors import RegistryError
from scheduler_core.framework.extension_points import POINT_CLASSES, Plugin, serves
from scheduler_core.framework.object_reads import DecodedTypes, ObjectReads, decoded_types

ENTRY_POINT_GROUP = "bayplan.plugins"


class Registry:
    """Plugin classes by the name by which profiles enable them."""

    def __init__(self, plugins: Iterable[type[Plugin]] = ()) -> None:
        self._classes: dict[str, type[Plugin]] = {}
        for plugin in plugins:
            self.register(plugin)
        self._built_in = frozenset(self._classes)

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def get(self, name: str) -> type[Plugin] | None:
        """Return the class of a plugin, None if there is no plugin of that name."""
        return self._classes.get(name)

    def is_built_in(self, name: str) -> bool:
        """Return whether a plugin is built in."""
        return name in self._built_in

    def register(self, plugin: object, origin: str = "") -> None:
        """Add a plugin class.

        Args:
            plugin: A concrete subclass of one or more extension points, with a ``name``.

        Raises:
            RegistryError: The name is taken, or the class is not a usable plugin.
        """
        where = f" (from {origin})" if origin else ""
        if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
            raise RegistryError(f"{plugin!r}{where} is not a subclass of Plugin; an entry point must name the class")
        name = getattr(plugin, "name", "")
        if not name:
            raise RegistryError(f'{plugin.__qualname__}{where} has no name; set the class attribute "name"')
        if not any(serves(plugin, point) for point in POINT_CLASSES):
            raise RegistryError(f'plugin "{name}"{where} implements no extension point; subclass at least one')
        missing = sorted(getattr(plugin, "__abstractmethods__", ()))
        if missing:
            raise RegistryError(f'plugin "{name}"{where} does not implement {", ".join(missing)}')
        if not isinstance(plugin.reads, ObjectReads):
            raise RegistryError(f'plugin "{name}"{where}: "reads" is not an ObjectReads; set it to an ObjectReads')
        if name in self._classes:
            raise RegistryError(f'plugin "{name}"{where} is already registered; rename one of the two plugins')
        self._classes[name] = plugin

    def decoded_types(self, *, reads_marks: bool = False) -> DecodedTypes:
        """Return the types as which nodes, pods and other kinds are decoded to contain what every plugin declares.

        Args:
            reads_marks: Whether the annotations of pods that name gangs of other schedulers are decoded.

        Raises:
            RegistryError: Two plugins declare the same field or kind in different forms.
        """
        reads = ((name, plugin.reads) for name, plugin in self._classes.items())
        return decoded_types(reads, reads_marks=reads_marks)

    def load_entry_points(self, points: Iterable[EntryPoint] | None = None) -> None:
        """Add every plugin that an installed distribution declares in the entry point group ``bayplan.plugins``.

        Raises:
            RegistryError: A plugin cannot be imported, is not a usable plugin, or has a name that is taken.
        """
        for point in entry_points(group=ENTRY_POINT_GROUP) if points is None else points:
            origin = f"entry point {point.name} = {point.value}"
            try:
                plugin = point.load()
            except Exception as error:
                raise RegistryError(
                    f"{origin} cannot be loaded ({error}); fix or uninstall the package that declares it"
                ) from error
            self.register(plugin, origin)
