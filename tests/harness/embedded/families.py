"""An owner of jobs with process trees that are hard to kill, for tests that kill it: run as `python families.py TOKEN`.

Every process of them has TOKEN among its arguments. Some made a session of their own, some dropped their
environment, some are orphans from the start, and new ones keep coming.
"""

from __future__ import annotations

import asyncio
import os
import sys

from carico.embedded.supervisor.guard import Guard, LaunchCommand

JOB = """
setsid sleep 7{token} &
(env -i setsid sleep 8{token} & ) &
( setsid sh -c 'sleep 9{token} & exec sleep 9{token}' & ) &
while true; do sleep 0.0{token} & sleep 0.01; done
"""


async def main(token: str) -> None:
    async with Guard() as guard:
        environment = {"PATH": os.environ["PATH"], "TOKEN": token}
        jobs = []
        for group in (False, True):
            command = LaunchCommand(["sh", "-c", JOB.format(token=token), token], environment, group=group)
            jobs.append(await guard.start(command))
        print(guard.supervisor_pid, *(job.pid for job in jobs), flush=True)
        await asyncio.gather(*(job.wait() for job in jobs))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
