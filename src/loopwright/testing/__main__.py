"""`python -m loopwright.testing`: the interpreter in which runs are begun, killed and resumed."""

from .crash_harness import serve

if __name__ == "__main__":
    serve()
