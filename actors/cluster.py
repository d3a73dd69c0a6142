"""Joining a Ray cluster, or starting a local one that listens on loopback only."""

from __future__ import annotations

import logging
import os

import ray

from penstock.runtime.errors import DeploymentError

_LOOPBACK = "127.0.0.1"


def connect() -> None:
    """Make sure that this process is in a Ray cluster.

    A process that already is stays there. Inside `ray job submit`, or with `RAY_ADDRESS` set, the cluster
    named there is joined; `penstock --address` sets it. Otherwise a local cluster is started for this
    process, bound to loopback.

    Raises:
        DeploymentError: The cluster named by `RAY_ADDRESS` can't be reached.
    """
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS")
    if address:
        try:
            ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
        except ConnectionError as error:
            msg = f"no Ray cluster answers at RAY_ADDRESS={address}: start one, or unset it for a local one"
            raise DeploymentError(msg) from error
        return
    ray.init(
        _node_ip_address=_LOOPBACK,
        include_dashboard=False,
        logging_level=logging.WARNING,
        log_to_driver=False,
    )


def join_existing() -> None:
    """Join the cluster of `RAY_ADDRESS`, or the one that runs on this machine.

    Raises:
        DeploymentError: None runs.
    """
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS", "auto")
    try:
        ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
    except ConnectionError as error:
        msg = f"no Ray cluster answers at {address!r}: set RAY_ADDRESS, or run this on a node of the cluster"
        raise DeploymentError(msg) from error
