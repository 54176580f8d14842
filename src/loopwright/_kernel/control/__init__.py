"""What people tell a run: commands, the inbox, questions."""
