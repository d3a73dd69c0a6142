"""`penstock ui`: shows jobs in a browser."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import webbrowser
from html import escape
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.actors.client.jobs import join
from penstock.actors.command_line.common import AddressOption, StorageOption, warn
from penstock.actors.web.application import ServerOptions, serve
from penstock.actors.web.routes import description
from penstock.runtime.errors import ConfigurationError

#: Environment variable that holds the user's own token.
TOKEN: Final = "PENSTOCK_UI_TOKEN"


def ui(
    host: Annotated[
        str,
        typer.Option(metavar="HOST", help="Address to listen on; an address beyond loopback needs a token."),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=65535, help="Port. Default: the first free of 8275 to 8294."),
    ] = None,
    storage: StorageOption = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show jobs, but refuse changes.")] = False,
    hide_records: Annotated[
        bool,
        typer.Option(
            "--hide-records",
            help="Hide sampled records and the values of keys. Errors and logs may quote records.",
        ),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"File with a token for programs (`Authorization: Bearer`). Default: the variable {TOKEN}.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another host name that requests may use, such as a proxy's."),
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser. Default: on a terminal.")
    ] = sys.stdout.isatty(),
    job: Annotated[str | None, typer.Option(metavar="ID", help="Open the page of this job first.")] = None,
    address: AddressOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the address as one line of JSON, for programs.")
    ] = False,
    with_parent: Annotated[
        bool, typer.Option("--with-parent", hidden=True, help="Exit when standard input is closed.")
    ] = False,
    openapi: Annotated[
        bool, typer.Option("--openapi", help="Print the OpenAPI description of the REST API, and exit.")
    ] = False,
) -> None:
    """Show jobs in a browser, and over REST. Runs until Ctrl-C.

    The printed address works once: it opens a session. Without --host, only this machine can reach the
    server.
    """
    if openapi:
        print(json.dumps(description(), indent=2))
        return
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    alone = join(storage, address)
    if alone is not None:
        warn(f"{alone}. Showing the ended jobs in {storage}")
    hosts, token = tuple(allow_host or ()), _token(token_file)
    options = ServerOptions(
        host,
        port,
        storage,
        read_only,
        token,
        hosts,
        ends_with_input=with_parent,
        hides_records=hide_records,
    )

    def show(url: str, login: str) -> None:
        login += "" if job is None else f"&job={job}"
        if as_json:
            print(json.dumps({"address": url, "login": login}), flush=True)
        else:
            print(
                f"Penstock is at {login}\nThe address works once. Ctrl-C ends the server; jobs continue.",
                flush=True,
            )
        if open_browser:
            webbrowser.open(page_that_leads_to(login, folder).as_uri())

    with tempfile.TemporaryDirectory(prefix="penstock-ui-") as name:
        folder = Path(name)
        serve(options, show)


def page_that_leads_to(login: str, folder: Path) -> Path:
    """Write a page that redirects to `login`, which other users could read in a browser's command line."""
    page = folder / "penstock.html"
    page.touch(0o600, exist_ok=False)
    at = escape(login)
    page.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0; url={at}"><title>Penstock</title>'
        f'<a href="{at}">Penstock</a>\n',
        encoding="utf-8",
    )
    return page


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN)
    try:
        readers = file.stat().st_mode & 0o077
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        msg = f"--token-file {file} can't be read: {error}"
        raise ConfigurationError(msg) from error
    if readers:
        msg = f"--token-file {file} can be read by others: `chmod 600 {file}`"
        raise ConfigurationError(msg)
    return token
