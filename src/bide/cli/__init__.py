"""The command line: one module per group of verbs, and one place where errors become lines and exit codes.

Exit codes: 0 done, 1 refused (an error of bide), 2 usage (what was typed cannot be read).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from bide.errors import BideError, LanguageError

REFUSED = 1
USAGE = 2
INTERRUPTED = 130


def main() -> None:
    """The program `bide`."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; errors are lines on stderr."""
    from bide.cli.program import BadUsage, program, usage_message
    from bide.cli.usage import UsageProblem

    as_json = "--json" in arguments
    try:
        code = program(next(iter(arguments), None))(args=list(arguments), prog_name="bide", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UsageProblem as problem:
        _complain(problem.code, str(problem), as_json)
        return USAGE
    except BadUsage as error:
        _complain("usage", usage_message(error), as_json)
        return USAGE
    except LanguageError as error:
        _complain(error.code, str(error), as_json, is_whole=True)
        return REFUSED
    except BideError as error:
        _complain(error.code, str(error), as_json)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _unread()
    except SystemExit as exit:  # how Typer answers a broken pipe
        if isinstance(exit.__context__, BrokenPipeError):
            return _unread()
        raise


def _unread() -> int:
    """Whoever read our output has gone, which is no error; what is still buffered must not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    return 0


def _complain(code: str, message: str, as_json: bool, *, is_whole: bool = False) -> None:
    """Say what went wrong in one line, or as it is: a problem in a file is shown with its line."""
    from bide.cli.output import one_line, to_json

    if as_json:
        print(to_json({"error": {"code": code, "message": message}}), file=sys.stderr)
    elif is_whole:
        print(message, file=sys.stderr)
    else:
        print(f"error: {one_line(message)}", file=sys.stderr)
