"""The thinking that some servers put in front of a reply."""

OPEN, CLOSE = "<think>", "</think>"


def strip_thinking(text: str) -> str:
    """Return what a reply says after its `<think>` block, or an empty text if the block never ends.

    Some chat templates open the block before the reply begins, so that the reply only closes it.
    """
    begins_with_thinking = text.lstrip().startswith(OPEN)
    thinking, closing_tag, reply = text.partition(CLOSE)
    is_closed = closing_tag != ""
    was_opened_before = OPEN not in thinking
    if is_closed and (begins_with_thinking or was_opened_before):
        return reply.lstrip()
    return "" if begins_with_thinking else text
