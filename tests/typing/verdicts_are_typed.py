"""A gate answers with a verdict: a bare truth value is none."""

from loopwright import Action, Deny, PolicyGate, PolicyState, Provider, Runtime, tool


class SaysYes:
    async def evaluate(self, action: Action, state: PolicyState) -> bool:
        return action.tool != state.key


class NotAsync:
    def evaluate(self, action: Action, state: PolicyState) -> Deny:
        return Deny(f"{action.tool} at {state.key}")


def gate_of_truth_values() -> PolicyGate:
    return SaysYes()  # error


def gate_that_is_not_async(provider: Provider) -> Runtime:
    return Runtime(provider, gate=NotAsync())  # error


def denial_without_a_reason() -> Deny:
    return Deny()  # error


@tool(effect="harmless")  # error
def harmless(text: str) -> str:
    """An effect that does not exist."""
    return text
