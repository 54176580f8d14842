"""Entry point of the crash harness's interpreter, in which runs are started, killed and resumed."""

from .crash_harness import serve

if __name__ == "__main__":
    serve()
