"""HTTP for providers: transport, connections, responses, server-sent events and what all endpoints share."""
