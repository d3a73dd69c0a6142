"""Runs the commands as `python -m penstock.actors.command_line`, where `penstock` is not on the path."""

from penstock.actors.command_line.app import main

if __name__ == "__main__":
    main()
