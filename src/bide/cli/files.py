"""`check`, `format`, `translate`, `graph`, `new`: the verbs for those who write machine files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bide.cli.output import Output
from bide.cli.usage import AppOption, JsonOption, UsageProblem

if TYPE_CHECKING:
    from bide.authoring.language.source import Problem

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A machine file.")]


def check(
    places: Annotated[
        list[str], typer.Argument(metavar="FILE|FOLDER|MODULE:APP", help="What to look at; may be repeated.")
    ],
    app: AppOption = None,
    json: JsonOption = False,
) -> int:
    """Find mistakes without running anything.

    Looks at machine files, at every machine file of a folder, or at the code of an app. With --app, names of machines
    and actions that a file calls are looked up in that app. Exit code 1 where there is anything to say.
    """
    known = _known(app)
    problems: list[Any] = []
    for place in places:
        problems += _check_one(place, known)
    out = Output(as_json=json)
    if json:
        out.value([_shown(problem) for problem in problems])
    else:
        for problem in problems:
            print(problem)
        if not problems:
            out.line(f"{', '.join(places)}: nothing to say", "green")
        else:
            print(f"{len(problems)} problem{'s' if len(problems) != 1 else ''}", file=sys.stderr)
    return 1 if problems else 0


def _known(app: str | None) -> list[str] | None:
    if app is None:
        return None
    from bide.cli.apps import find_app

    found = find_app(app)
    return [*found.registry.names(), *found.surroundings.actions]


def _check_one(place: str, known: list[str] | None) -> list[Problem]:
    from bide.authoring.language.checking import check_text
    from bide.authoring.language.definition import files, read_file

    path = Path(place)
    if path.is_dir() or path.suffix == ".machine":
        if not path.exists():
            raise UsageProblem(f"there is no file {place!r}", "file_not_found")
        found: list[Problem] = []
        for file in files(path):
            found += check_text(read_file(file), str(file), known)
        return found
    from bide.authoring.reviewing import review
    from bide.cli.apps import find_app

    return review(find_app(place).registry)


def _shown(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "severity": problem.severity,
        "message": problem.message,
    }


def format(
    places: Annotated[list[Path], typer.Argument(metavar="FILE|FOLDER", help="What to format; may be repeated.")],
    check_only: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 where files differ.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Give machine files bide's own layout."""
    from bide.authoring.language import format_file
    from bide.authoring.language.definition import files, read_file

    changed: list[str] = []
    for path in (file for place in places for file in files(_there(place))):
        text = read_file(path)
        made = format_file(text, str(path))
        if made != text:
            changed.append(str(path))
            if not check_only:
                path.write_bytes(made.encode())
    out = Output(as_json=json)
    if json:
        out.value({"changed": changed})
    else:
        for name in changed:
            out.line(f"{'would change' if check_only else 'formatted'} {name}")
    return 1 if check_only and changed else 0


def translate(
    file: FileArgument,
    to: Annotated[str, typer.Option("--to", metavar="LANGUAGE", help="en, es, fr, de, ja, zh or ko.")],
    write: Annotated[bool, typer.Option("--write", help="Replace the file.")] = False,
) -> int:
    """Print a machine file in another language.

    Comments and layout stay as they are.
    """
    from bide.authoring.language import translate as translated
    from bide.authoring.language.definition import read_file
    from bide.authoring.language.words import LANGUAGES

    if to not in LANGUAGES:
        raise UsageProblem(f"--to {to}: there is no such language; known are {', '.join(LANGUAGES)}")
    made = translated(read_file(_there(file)), to, str(file))
    if write:
        file.write_bytes(made.encode())
    else:
        sys.stdout.buffer.write(made.encode())
    return 0


def graph(
    place: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="What to draw.")],
    machine: Annotated[
        str | None, typer.Option("--machine", metavar="NAME", help="Only this one.", show_default=False)
    ] = None,
    svg: Annotated[bool, typer.Option("--svg", help="Draw SVG in place of Mermaid text.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.", show_default=False)
    ] = None,
) -> int:
    """Draw machines: steps, branches, flows and timeouts.

    And which of them call or launch each other.
    """
    from bide.authoring.language import graphing
    from bide.authoring.language.definition import files, read_file
    from bide.authoring.language.parser import parse

    machines = [each for file in files(_there(place)) for each in parse(read_file(file), str(file)).machines]
    chosen = [each for each in machines if machine in (None, each.name)]
    if not chosen:
        raise UsageProblem(f"{place} has no machine {machine!r}; it has {', '.join(each.name for each in machines)}")
    is_svg = svg or (output is not None and output.suffix == ".svg")
    draw = graphing.svg if is_svg else graphing.mermaid
    drawn = draw(graphing.graph_of(*chosen))
    if output is not None:
        output.write_text(drawn, encoding="utf-8")
    else:
        sys.stdout.buffer.write(drawn.encode())
    return 0


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it; also the name of the file.")],
    template: Annotated[
        str, typer.Option("--template", metavar="KIND", help="machine, approval, callback, event, workflow or steps.")
    ] = "machine",
    language: Annotated[str, typer.Option("--language", metavar="LANGUAGE", help="Of a machine file.")] = "en",
) -> int:
    """Begin a machine file, or a Python program, from a template."""
    from bide.authoring.language import translate as translated
    from bide.authoring.language.words import LANGUAGES
    from bide.cli.templates import PROGRAMS, TEMPLATES

    if template not in (*TEMPLATES, *PROGRAMS):
        raise UsageProblem(f"there is no template {template!r}; there are {', '.join((*TEMPLATES, *PROGRAMS))}")
    if language not in LANGUAGES:
        raise UsageProblem(f"there is no language {language!r}; known are {', '.join(LANGUAGES)}")
    if not name.isidentifier():
        raise UsageProblem(f"{name!r} is no name; use letters, digits and underscores")
    is_program = template in PROGRAMS
    path = Path(f"{name}.py" if is_program else f"{name}.machine")
    if path.exists():
        raise UsageProblem(f"there is a file {str(path)!r} already", "file_exists")
    text = PROGRAMS[template] if is_program else TEMPLATES[template]
    text = text.replace("NAME", name)
    path.write_bytes((text if is_program else translated(text, language)).encode())
    print(f"wrote {path}; next: bide check {path}, then: bide dev {path}")
    return 0


def _there(path: Path) -> Path:
    if not path.exists():
        raise UsageProblem(f"there is no file {str(path)!r}", "file_not_found")
    if path.suffix == ".py":
        raise UsageProblem(f"{path} is a Python program; this verb is for machine files, like order.machine")
    return path
