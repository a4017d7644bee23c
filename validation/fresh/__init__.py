"""Hold predictions against fresh recordings of this machine.

`sh validation/fresh/record.sh DIR` records work of every day (a build, compression, a web server, a
pipeline, a pool of workers, a parent that polls workers, threads that share a lock, threads that wait
for each other, senders and receivers of messages, short commands, and servers that are installed) and
the same with its tasks at another nice value, of another policy, on one CPU, or in a group that has
another weight, a quota or is idle. `python -m validation.fresh DIR` predicts each from the recording of
another round in which nothing was changed, and writes how often the 90 % intervals of `tracekit compare`
hold the real values. Nothing is fitted to these recordings.
"""
