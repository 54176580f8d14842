"""One run at work. Private: engines see it through `Run`, applications through `Runtime`."""
