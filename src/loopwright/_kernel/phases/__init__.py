"""The cycle: observe, reason, gate, act, and what each of them needs."""
