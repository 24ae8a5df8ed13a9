"""`carico run`: a command over a list of inputs, as many at once as the machine can really take.

command.py    flags, and all parts together
template.py   the command with its replacement strings
inputs.py     where the inputs come from
runner.py     starts tasks, watches them, starts them again
admission.py  may one more start? State without I/O
memory.py     is there memory for one more, and who has to give way when there is not? State without I/O
meter.py      what the admission is told: telemetry, estimation, the tasks' own memory
output.py     one task's output at a time
joblog.py     what has been done, for --resume
progress.py   the line on the terminal
"""
