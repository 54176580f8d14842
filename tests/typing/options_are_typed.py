"""The options of engines and limits are checked by name and type, and cannot be set later."""

from loopwright import Limits, ReActEngine, Runtime


def unknown_option(runtime: Runtime) -> ReActEngine:
    return ReActEngine(runtime, max_iteration=3)  # error


def option_of_another_type(runtime: Runtime) -> ReActEngine:
    return ReActEngine(runtime, max_iterations="three")  # error


def option_by_position(runtime: Runtime) -> ReActEngine:
    return ReActEngine(runtime, 3)  # error


def no_runtime() -> ReActEngine:
    return ReActEngine(max_iterations=3)  # error


def set_an_option(engine: ReActEngine) -> None:
    engine.max_iterations = 3  # error


def unknown_limit() -> Limits:
    return Limits(max_iteration=3)  # error


def limit_of_another_type() -> Limits:
    return Limits(timeout="3 s")  # error


def set_a_limit(limits: Limits) -> None:
    limits.max_llm_calls = None  # error
