"""``flask bucket``: commands for the people who set limits, and for those on call.

Commands that need the application find it as every Flask command does. Exit codes: 0 is success, 1
is a problem that was found, 2 is a command that cannot be understood.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from flask.cli import NoAppException

from ..errors import ConfigError
from .bans import ban, bans
from .clients import reset, show
from .doctor import doctor
from .limits import limits
from .output import Failure
from .simulate import simulate
from .top import top


class OneLineErrors(click.Group):
    """A group whose errors are one line. Click adds two lines of usage: noise for scripts."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise _in_one_line(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:  # click makes the application when a command needs it
            raise Failure(str(error)) from None
        except click.UsageError as error:
            raise _in_one_line(error) from None


def _in_one_line(error: click.UsageError) -> click.ClickException:
    # Without arguments, click shows the whole help, and should.
    # Flask's error for a missing application is a UsageError too, of several lines.
    if type(error).__name__ == "NoArgsIsHelpError":
        return error
    if isinstance(error, NoAppException):
        return Failure(_without_traceback(error.format_message()))
    command = f" See {error.ctx.command_path} --help." if error.ctx is not None else ""
    return Failure(error.format_message() + command)


def _without_traceback(message: str) -> str:
    """Return Flask's message about an application that cannot be imported, without its traceback.

    Of this, what was raised is left, and the last place that is not in an installed package.
    """
    head, found, traceback = message.partition("Traceback (most recent call last):\n")
    if not found:
        return message
    frames = re.findall(r'^  File "(.+)", line (\d+)', traceback, re.MULTILINE)
    others = ("site-packages", str(Path(__file__).parents[1]))
    own = [frame for frame in frames if not any(o in frame[0] for o in others)] or frames
    raised = re.split(r"^  .*\n", traceback, flags=re.MULTILINE)[-1]
    return f"{head} {raised} ({own[-1][0]}, line {own[-1][1]})"


@click.group(cls=OneLineErrors)
def bucket() -> None:
    """Inspect rate limits and buckets, and try out limits."""


for _command in (limits, doctor, show, reset, top, bans, ban, simulate):
    bucket.add_command(_command)
