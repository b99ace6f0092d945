"""``flask bucket``: commands for the people who set limits, and for those on call.

Some need the application and find it as every Flask command does; ``simulate`` needs none.
Exit codes: 0 is well, 1 is something found or gone wrong, 2 is a question that made no sense.
"""

from __future__ import annotations

from typing import Any

import click

from ..errors import ConfigError
from .clients import reset, show
from .doctor import doctor
from .limits import limits
from .output import Failure
from .simulate import simulate
from .top import top


class OneLineErrors(click.Group):
    """A group whose errors are one line: click adds two of usage, which scripts have no use for."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise _in_one_line(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:  # the application's: it is made when a command needs it
            raise Failure(str(error)) from None
        except click.UsageError as error:
            raise _in_one_line(error) from None


def _in_one_line(error: click.UsageError) -> click.ClickException:
    # Without any argument click shows the whole help instead, and that is what it should do.
    # (Flask's error for "there is no application" is a UsageError as well, of several lines.)
    if type(error).__name__ == "NoArgsIsHelpError":
        return error
    command = f" See {error.ctx.command_path} --help." if error.ctx is not None else ""
    return Failure(error.format_message() + command)


@click.group(cls=OneLineErrors)
def bucket() -> None:
    """Look at rate limits and their buckets, and try limits out."""


for _command in (limits, doctor, show, reset, top, simulate):
    bucket.add_command(_command)
