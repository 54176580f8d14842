"""AG-UI 1.0: runs as a front end of that protocol starts, watches and resumes them; the extra `ag-ui`."""
