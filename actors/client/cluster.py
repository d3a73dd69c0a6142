"""Joining a Ray cluster, or starting a local one that listens on loopback only.

Ray turns `_node_ip_address="127.0.0.1"` into the machine's own address, and then its servers listen on every
interface. Only when it is told that no cluster of several machines is wanted does it take 127.0.0.1 at its
word, and each of its servers binds to loopback. Ray has that switch for macOS and Windows
(`RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER`); here it is set while a local cluster starts, and while one is joined by
its loopback address, which Ray would rewrite too. It changes nothing for addresses of other machines.

Token authentication stays as Ray has it: on for local clusters, with the token in `~/.ray/auth_token`. Ray
does not send the token to an address that was given explicitly; here it is sent to clusters that run on this
machine.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ray
from ray._private import ray_constants, services

from penstock.runtime.errors import DeploymentError

_LOOPBACK: Final = "127.0.0.1"
_CLUSTER_SWITCH: Final = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_AUTH_LOGGER: Final = "ray._private.authentication.authentication_token_setup"
#: Seconds to wait for a connection. On a machine that is busy with other things it may take some of them.
_PROBE_TIMEOUT: Final = 20.0


def connect() -> None:
    """Make sure that this process is in a Ray cluster.

    A process that already is stays there. Inside `ray job submit`, or with `RAY_ADDRESS` set, the cluster
    named there is joined, and without it one that `ray start` has started on this machine. Where there is
    none, a local cluster is started for this process, on loopback.

    Raises:
        DeploymentError: The cluster named by `RAY_ADDRESS` can't be reached.
    """
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS")
    if address and address != "local":
        _join(address, f"RAY_ADDRESS={address}", "start one, or unset it for a local one")
        return
    started = None if address == "local" else services.find_bootstrap_address(None)
    if started is not None and _silence_of(started) is None:
        _join(started, started, "end it with `ray stop`")
    else:
        start_local()


def start_local(**options: Any) -> None:
    """Start a local cluster that lives as long as this process and listens on loopback only.

    Args:
        **options: For `ray.init`, such as `num_cpus`.
    """
    with _as_single_machine(), _without_authentication_notice():
        ray.init(
            address="local",
            _node_ip_address=_LOOPBACK,
            **{
                "include_dashboard": False,
                "logging_level": logging.WARNING,
                "log_to_driver": False,
                **options,
            },
        )


def join_existing(address: str | None = None) -> None:
    """Join the cluster of `address`, else of `RAY_ADDRESS`, else the one that runs on this machine.

    Raises:
        DeploymentError: None runs, or several do and none was named.
    """
    if ray.is_initialized():
        return
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address == "auto":
        address = _only_cluster_here()
    _join(address, repr(address), "look at `ray status`, or name another one with --address or RAY_ADDRESS")


def _only_cluster_here() -> str:
    started = services.find_bootstrap_address(None)
    if started is not None and _silence_of(started) is None:
        return str(started)
    here = _clusters_here()
    if not here:
        msg = (
            "no Ray cluster runs on this machine: run this on a node of the cluster, or name the cluster "
            "with --address HOST:PORT or RAY_ADDRESS"
        )
        raise DeploymentError(msg)
    if len(here) > 1:
        msg = (
            f"{len(here)} Ray clusters run on this machine ({', '.join(here)}): "
            "choose one with --address or RAY_ADDRESS"
        )
        raise DeploymentError(msg)
    return here[0]


def _clusters_here() -> list[str]:
    addresses: frozenset[str] = services.find_gcs_addresses()  # type: ignore[no-untyped-call]
    return sorted(addresses)


def _join(address: str, what: str, advice: str) -> None:
    silence = None if "://" in address else _silence_of(address)
    if silence is not None:
        msg = f"no Ray cluster answers at {what} ({silence}): {advice}"
        raise DeploymentError(msg)
    if address in _clusters_here():
        _use_token_of_this_machine()
    try:
        with _as_single_machine(), _without_authentication_notice():
            ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
    except Exception as error:  # Ray raises many kinds; its text says which
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        msg = f"the Ray cluster at {what} can't be joined ({reason}): {advice}"
        raise DeploymentError(msg) from error


def _silence_of(address: str) -> str | None:
    """Why nothing listens there, `None` if something does.

    Ray itself would try for most of a minute and then end the process.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE_TIMEOUT):
            return None
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__


def _use_token_of_this_machine() -> None:
    try:
        from ray._private.authentication.authentication_token_setup import (
            maybe_enable_token_auth_if_token_available,
        )
    except ImportError:  # a Ray without token authentication
        return
    with _without_authentication_notice():
        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


@contextmanager
def _as_single_machine() -> Iterator[None]:
    """Ray takes loopback addresses at their word; the environment tells the processes that it starts."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    in_environment = os.environ.get(_CLUSTER_SWITCH)
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ[_CLUSTER_SWITCH] = "0"
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        if in_environment is None:
            del os.environ[_CLUSTER_SWITCH]
        else:
            os.environ[_CLUSTER_SWITCH] = in_environment


@contextmanager
def _without_authentication_notice() -> Iterator[None]:
    """Ray warns whenever authentication is on by default; that it is off stays worth a warning."""

    def is_worth_saying(record: logging.LogRecord) -> bool:
        return "authentication is enabled" not in record.getMessage()

    ray_logger = logging.getLogger(_AUTH_LOGGER)
    ray_logger.addFilter(is_worth_saying)
    try:
        yield
    finally:
        ray_logger.removeFilter(is_worth_saying)
