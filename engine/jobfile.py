"""Finding the job in a user's file."""

from __future__ import annotations

import difflib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from penstock.job import Job
from penstock.plan.errors import JobFileError, PenstockError

_loaded: set[str] = set()  # modules that came from job files, which a job file of the same name may replace


def load(place: str) -> Job:
    """The job in a file: ``file.py`` when it holds one, ``file.py:name`` when it holds several.

    The file is imported as a module of its own name, so what stands under ``if __name__ == "__main__"`` does
    not run. Its folder is searched first by its imports, as Python does for a script.
    """
    path, name = split(place)
    shown = _near(path)
    jobs = {n: v for n, v in vars(imported(path)).items() if isinstance(v, Job)}
    if name is not None:
        if name not in jobs:
            there = f"there is {', '.join(jobs)}" if jobs else "it holds no job at its top level"
            raise JobFileError(f"{shown} has no job {name!r}; {there}.")
        return jobs[name]
    # one job under two names is one job
    first_names = {id(job): n for n, job in reversed(jobs.items())}
    names = [n for n in jobs if n in first_names.values()]
    if not names:
        raise JobFileError(f"{shown} holds no job at its top level. Write one there: job = Job('my_job').")
    if len(names) > 1:
        raise JobFileError(
            f"{shown} holds {len(names)} jobs: {', '.join(names)}. Name the one you mean: {shown}:{names[0]}."
        )
    return jobs[names[0]]


def split(place: str) -> tuple[Path, str | None]:
    """The file and the job's name in ``file.py:name``; a colon in the path itself stays in it.

    >>> split("jobs/shop.py:hourly")
    (PosixPath('jobs/shop.py'), 'hourly')
    >>> split("a:b/shop.py")
    (PosixPath('a:b/shop.py'), None)
    """
    file, colon, name = place.rpartition(":")
    if colon and name.isidentifier() and not Path(place).exists():
        return Path(file), name
    return Path(place), None


def imported(path: Path) -> ModuleType:
    """The file as a module; what its own code raises is told with the user's line and not with our stack."""
    _check_there(path)
    path = path.resolve()
    name = path.stem
    if name in sys.modules and name not in _loaded:
        raise JobFileError(f"{_near(path)} has the name of the module {name!r}, which is in use. Rename the file.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise JobFileError(f"{_near(path)} is no Python file; its name must end in .py.")
    _search_first(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _loaded.add(name)
    try:
        # not through the loader, which leaves a __pycache__ and misses two edits in one second
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except PenstockError:
        del sys.modules[name]
        raise  # says itself what is wrong and on which line
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise JobFileError(f"{_near(path)} does not import: {_told(error, path)}") from error
    return module


def _check_there(path: Path) -> None:
    if path.is_dir():
        raise JobFileError(f"{path} is a folder. Name the file in it that holds the job.")
    if not path.exists():
        beside = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, beside, 1)
        hint = f"Did you mean {path.with_name(near[0])}?" if near else "Give the path of a Python file."
        raise JobFileError(f"{path}: no such file. {hint}")


def _search_first(folder: Path) -> None:
    """Let the file's imports find its neighbours, here and in the Python processes that Spark starts."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    others = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if str(folder) not in others:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *others])


def _told(error: BaseException, path: Path) -> str:
    """The user's error in a line: its type, what it says, and the last line of the user's own that led to it."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{type(error).__name__}: {error.msg} ({_near(Path(error.filename))}:{error.lineno})"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    own = [f for f in frames if Path(f.filename).is_relative_to(path.parent) and "site-packages" not in f.filename]
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if not own:
        return said
    return f"{said} ({_near(Path(own[-1].filename))}:{own[-1].lineno})"


def _near(path: Path) -> str:
    """The path from the working directory, where that is shorter."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near
