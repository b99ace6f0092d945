"""``flask bucket``: commands for the people who set limits, and for those on call.

Commands that need the application find it as every Flask command does. Exit codes: 0 is success, 1
is a problem that was found, 2 is a command that cannot be understood.
"""

from __future__ import annotations

from typing import Any

import click

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
    command = f" See {error.ctx.command_path} --help." if error.ctx is not None else ""
    return Failure(error.format_message() + command)


@click.group(cls=OneLineErrors)
def bucket() -> None:
    """Inspect rate limits and buckets, and try out limits."""


for _command in (limits, doctor, show, reset, top, bans, ban, simulate):
    bucket.add_command(_command)
