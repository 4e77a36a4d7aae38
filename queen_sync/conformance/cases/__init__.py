"""The case groups, by topic; each case has its id in its name and its rules in its docstring."""
