"""The node agent: reads samples, publishes Pod-Capacity. Also the commands that use the same data: top, record, replay.

`carico agent`
    process.py           the command; creates all parts
    loop.py              the sampling loop: read, count pods, estimate, publish
    measuring.py         demand of each pod, once a second
    full.py              the absolute demand that the node can hold
    node.py              messages of this node to the aggregator and the schedulers
    memory.py            the state file
    exporter.py          Prometheus metrics

`carico top`
    top.py               the command
    screen.py            the picture as lines of text
    terminal.py          raw terminal mode and drawing
    keys.py              key names from terminal input
    processes.py         processes of this machine by pod
    table.py             estimates as lines of text; also for replay
    watch.py             samples and pod counts, tick by tick; also for record

`carico record`, `carico replay`
    record.py            the command `carico record`
    recording.py         the file format: writes it, loads any version
    recording_lines.py   parses gzip over lines of JSON
    recording_chunks.py  parses the older binary format
    recording_json.py    parses plain JSON
    replay.py            the command `carico replay`
    playback.py          a recording as input of the pipeline
    plot.py              a plot of a replayed recording
"""
