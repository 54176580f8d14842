"""Entry point of `python -m loopwright`, the same as the command `loopwright`."""

from .cli import main

if __name__ == "__main__":
    main()
