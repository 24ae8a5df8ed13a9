"""`carico run`: a command over a list of inputs, as many at once as the machine has capacity for.

The command is commands/run.py. It is not in the wheel of container images (pyproject.toml, [tool.carico]).

template.py   the command with its replacement strings
inputs.py     where the inputs come from
runner.py     starts tasks, watches them, restarts them
tasks.py      a task, its result, and the counts of all tasks
admission.py  whether one more task may start: state without I/O
memory.py     whether there is memory for one more, and what to pause or kill if there is not: state without I/O
meter.py      input of the admission: telemetry, estimation, the tasks' memory
output.py     prints the output of one task at a time
joblog.py     log of ended tasks, for --resume
progress.py   the progress line on the terminal
"""
