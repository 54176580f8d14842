"""One run at work; private: engines see it through `Run`, applications through `Runtime`."""
