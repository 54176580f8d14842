"""Claims of a permitted call: what may be said about it outside this process."""

from .._internal import dataclasses


@dataclasses.dataclass(frozen=True)
class Claims:
    """One call that policy allowed, as plain data.

    Args:
        run_id: the run.
        key: the position of the call in the run, the same when the call is repeated.
        call_id: the id that correlates the call with its observation.
        tool: the tool that is called.
        arguments_hash: SHA-256 (hex) of the canonical JSON of its arguments, as `arguments_hash`
            makes it.
        policy_version: the version of the policy that allowed it.
        expires: wall clock, seconds since the Unix epoch, after which the call must not be made.
    """

    run_id: str
    key: str
    call_id: str
    tool: str
    arguments_hash: str
    policy_version: str
    expires: float
