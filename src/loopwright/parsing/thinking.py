"""The thinking that some servers leave in front of a reply."""

OPEN, CLOSE = "<think>", "</think>"


def strip_thinking(text: str) -> str:
    """What a reply says behind its `<think>` block; nothing if the block never ends.

    Some chat templates open the block before the reply begins, which then only closes it.
    """
    begins = text.lstrip().startswith(OPEN)
    thinking, closed, said = text.partition(CLOSE)
    if closed and (begins or OPEN not in thinking):
        return said.lstrip()
    return "" if begins else text
