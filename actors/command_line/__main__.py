"""`python -m penstock.actors.command_line`: the commands, where `penstock` is not on the path."""

from penstock.actors.command_line.app import main

if __name__ == "__main__":
    main()
