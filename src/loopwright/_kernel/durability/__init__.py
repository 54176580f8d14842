"""What a journal already answers: keys, replay, forks."""
