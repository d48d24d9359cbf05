"""`python -m bide` is the same program as `bide`."""

from bide.cli import main

if __name__ == "__main__":
    main()
