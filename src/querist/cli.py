"""The command line: one application, a line per room, exit codes that scripts can rely on."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter
from pydantic import ValidationError

from querist import __version__
from querist.errors import QueristError
from querist.reports.command import TYPED

__all__ = ["ROOMS", "app", "main"]

ROOMS = {
    "weights": "What did training leave in a network's weights?",
    "features": "What do a network's layers keep of the data they see?",
    "concepts": "What can be hidden in a model's concepts?",
    "effects": "What does a treatment change?",
}
"""Room to the question it asks. A room is a folder with `commands.py`, whose `app` holds its commands."""

app = App(
    name="querist",
    help="Asks four questions of a neural network and answers each beside its null.",
    version=__version__,
    default_parameter=Parameter(negative_iterable=(), show_env_var=False),
    result_action="return_value",
)
for _room, _question in ROOMS.items():
    app.command(f"querist.{_room}.commands:app", name=_room, help=_question)
app.command(
    "querist.demo.commands:demo", name="demo", help="Ask every question of bundled inputs; opens one index page."
)
app.command(
    "querist.claims.commands:claims", name="claims", help="Test the claims that the rooms rest on; print the ledger."
)
app.command("querist.reports.commands:report", name="report", help="Draw the report of a run folder again.")
app.command("querist.reports.commands:runs", name="runs", help="One page over all run folders below a folder.")
app.command("querist.sources.datasets.commands:app", name="data", help="Registered data sets: list them, fetch one.")

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 failed, 2 bad input or usage, 3 a gate, 130 interrupted."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    before = TYPED.set(tuple(tokens))
    try:
        code = app(tokens, exit_on_error=False, print_error=False)
    except QueristError as error:
        return _say(f"{error} [{error.code}]", error.exit_code)
    except ValidationError as error:
        from querist.runs.study import bad_option

        return _say(f"{bad_option(error)} [bad-option]", EXIT_USAGE)
    except CycloptsError as error:
        return _say(_usage(error, tokens), EXIT_USAGE)
    except KeyboardInterrupt:
        return _say("Interrupted. The run is kept; the same command with --resume goes on.", EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_FAILED
    except Exception:
        traceback.print_exc()
        return _say("This is a defect of querist; please report it with the lines above.", EXIT_FAILED)
    finally:
        TYPED.reset(before)
    return code if isinstance(code, int) else 0


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"querist: {message}\n")
    return code


def _usage(error: CycloptsError, tokens: Sequence[str]) -> str:
    if isinstance(error.__cause__, ValidationError):
        from querist.runs.study import bad_option

        return f"{bad_option(error.__cause__)} [bad-option]"
    room = next((token for token in tokens[:1] if token in ROOMS), "")
    command = f"querist {room}".strip()
    text = " ".join(str(error).split())
    return f"{text} See: {command} --help [usage]"
