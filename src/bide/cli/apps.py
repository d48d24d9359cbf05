"""Finding the app that a command line names: `module:app`, `module`, `FILE.py`, `FILE.machine` or a folder of those."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from bide.cli.usage import UsageProblem

if TYPE_CHECKING:
    from bide.app import App

CODE = "app_not_found"
OWN_CODE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def find_app(reference: str) -> App:
    """Import the module and take the app out of it. The current folder can be imported from, as with `python -m`.

    Raises `UsageProblem` where there is no such module, file or app, and where the module breaks at import.
    """
    from bide.app import App

    if reference.endswith(".machine") or os.path.isdir(reference):
        return _machine_files(reference)
    _importable(os.getcwd())
    place, _, name = reference.partition(":")
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    if not name:
        return _only_app(module, place)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageProblem(f"{place} has no {name!r}; {_apps_said(module, place)}", CODE)
        found = getattr(found, part)
    if not isinstance(found, App):
        raise UsageProblem(
            f"{reference} is a {type(found).__name__}, not a bide.App; {_apps_said(module, place)}", CODE
        )
    return found


def _machine_files(place: str) -> App:
    """An app of nothing but machine files; its store is the default one, or what settings say."""
    from bide.app import App

    if not os.path.exists(place):
        raise UsageProblem(f"there is no file {place!r}", CODE)
    app = App(os.path.basename(place.rstrip("/")).removesuffix(".machine") or "bide")
    app.load(place)
    return app


def _importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _load_module(name: str) -> ModuleType:
    if not name or not all(part.isidentifier() for part in name.split(".")):
        hint = f"; did you mean {name}.py?" if os.path.isfile(f"{name}.py") else ""
        raise UsageProblem(f"{name!r} is no name of a module; write module:app or a file.py{hint}", CODE)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageProblem(
                f"there is no module {error.name!r} in {os.getcwd()} or among the packages", CODE
            ) from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _load_file(path: Path) -> ModuleType:
    """Import a file under the name that other modules would import it by, so that it is not there twice."""
    if not path.is_file():
        raise UsageProblem(f"there is no file {str(path)!r}", CODE)
    path = path.resolve()
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    _importable(str(folder))
    name = ".".join(parts)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path:
        return _load_module(name) if name.replace(".", "_").isidentifier() else _load_alone(name, path)
    return _load_alone(f"bide_app_{path.stem}", path)  # another module has that name


def _load_alone(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _broken(path.name, error) from error
    return module


def _broken(place: str, error: Exception) -> UsageProblem:
    where = ""
    if not isinstance(error, SyntaxError):  # that one says where by itself
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
        frames = [f for f in frames if not f.filename.startswith(OWN_CODE)] or frames  # where it was called, not raised
        if frames and frames[-1].filename != __file__:
            where = f" ({frames[-1].filename}, line {frames[-1].lineno})"
    return UsageProblem(f"{place} could not be imported: {type(error).__name__}: {error}{where}", CODE)


def _apps_in(module: ModuleType) -> list[str]:
    from bide.app import App

    return [name for name, value in vars(module).items() if isinstance(value, App)]


def _apps_said(module: ModuleType, place: str) -> str:
    apps = _apps_in(module)
    return f"it has {', '.join(f'{place}:{name}' for name in apps)}" if apps else "it has no bide.App at all"


def _only_app(module: ModuleType, place: str) -> App:
    from bide.app import App

    apps = {id(getattr(module, name)): name for name in reversed(_apps_in(module))}
    name = "app" if isinstance(getattr(module, "app", None), App) else next(iter(apps.values()), None)
    if name is None:
        raise UsageProblem(f"{place} has no bide.App; write app = bide.App(...) in it", CODE)
    if len(apps) > 1 and name != "app":
        raise UsageProblem(
            f"{place} has several apps; name one: {', '.join(f'{place}:{n}' for n in _apps_in(module))}", CODE
        )
    app = getattr(module, name)
    assert isinstance(app, App)
    return app
