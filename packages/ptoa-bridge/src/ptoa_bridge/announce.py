"""What the bridge says on the terminal: where to look, and what may be in the way.

Text only; ``Bridge`` prints it. Whatever comes from the environment is either of a plain
form or left out, since the user is going to paste the line into a shell.
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING

from ptoa_core.terminal import escape

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

__all__ = ["HINT_SECONDS", "addresses", "complain", "hint", "say", "ssh_line"]

HINT_SECONDS = 10.0

_REMOTE_SIGNS = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "JUPYTERHUB_USER", "JUPYTERHUB_API_URL")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")


def addresses(*, lab_url: str | None, local_url: str, ssh: str | None) -> str:
    """The lines that name the pages to open.

    Args:
        lab_url: The Lab's address with bridge and token; ``None`` where the user chose the
            local page.
        local_url: The local page's address with the token.
        ssh: The command that makes the local page reachable from another machine, if this
            one looks remote.

    Returns:
        One line a page, and two for the command.

    Example:
        >>> print(addresses(lab_url=None, local_url="http://127.0.0.1:8000/#token=t", ssh=None))
        Local page: http://127.0.0.1:8000/#token=t
    """
    lines = [] if lab_url is None else [f"Lab:        {lab_url}"]
    lines.append(f"Local page: {local_url}")
    if ssh is not None:
        lines += ["This session looks remote. Run this on your own computer, then open the address there:"]
        lines += [f"  {ssh}"]
    return "\n".join(lines)


def ssh_line(port: int, environ: Mapping[str, str], *, user: str, machine: str) -> str | None:
    """A ready ``ssh -L`` command, or ``None`` when the session does not look remote.

    Args:
        port: The bridge's port, the same on both ends.
        environ: The process's environment.
        user: Who runs the process.
        machine: This machine's name, used where the environment does not say how it was
            reached.

    Returns:
        One line to paste. A name that is not plain becomes a word to fill in.

    Example:
        >>> ssh_line(8000, {"SSH_CONNECTION": "10.0.0.9 5000 10.0.0.5 2222"}, user="ada", machine="box")
        'ssh -p 2222 -L 8000:127.0.0.1:8000 ada@10.0.0.5'
        >>> ssh_line(8000, {}, user="ada", machine="box")
    """
    if not any(environ.get(sign) for sign in _REMOTE_SIGNS):
        return None
    _, _, address, ssh_port = (environ.get("SSH_CONNECTION", "").split() + [""] * 4)[:4]
    option = f"-p {ssh_port} " if re.fullmatch(r"[0-9]{1,5}", ssh_port) and ssh_port != "22" else ""
    target = f"{_plain(user, 'user')}@{_plain(address or machine, 'host')}"
    return f"ssh {option}-L {port}:127.0.0.1:{port} {target}"


def hint(*, lab: bool) -> str:
    """The line to print when no page has asked for anything.

    Args:
        lab: Whether the hosted Lab, or another one, was announced beside the local page.

    Returns:
        One sentence on one line. The token is not in it.

    Example:
        >>> "file mode" in hint(lab=True) and "Safari" in hint(lab=True)
        True
    """
    rest = (
        "on a remote machine, forward the port with ssh -L; or use file mode (ptoa.save), "
        "which needs no connection."
    )
    if not lab:
        return f"no page has asked for data yet: open the local page at the address above; {rest}"
    return (
        "no page has asked for data yet: if Chrome, Edge or Firefox asks for permission to reach your local "
        "network, allow it; Safari blocks the Lab here; the local page, at the address above, needs no "
        f"permission; {rest}"
    )


def complain(text: str) -> None:
    """Write one line to standard error, where there is one.

    Args:
        text: The line, without an end.

    Example:
        >>> complain("port 8000 is busy")
    """
    say(f"ptoa-bridge: {escape(text)}", sys.stderr)


def say(text: str, stream: TextIO | None) -> None:
    """Write text and an end of line to a stream that may be gone.

    Args:
        text: What to write.
        stream: None under pythonw; it may be closed, a pipe that no one reads, or an object
            of the user's that has only some of what a stream has.

    Example:
        >>> say("hello", sys.stdout)
        hello
        >>> say("hello", None)
    """
    # Whatever is wrong with it: a line that cannot be shown is no reason to end a training run.
    with contextlib.suppress(Exception):
        if stream is not None:
            stream.write(text + "\n")
            stream.flush()


def _plain(text: str, otherwise: str) -> str:
    """``text``, if a shell takes it as it stands."""
    return text if _PLAIN.fullmatch(text) else otherwise
