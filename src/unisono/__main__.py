"""`python -m unisono` is the command `unisono`."""

from unisono.cli.main import entry

if __name__ == "__main__":
    entry()
