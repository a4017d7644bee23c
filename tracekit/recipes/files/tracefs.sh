#!/bin/sh
# Scheduler trace without any tool (Linux): the kernel's own files. Run as root: sh tracefs.sh NAME [SECONDS]
# writes NAME, and what the machine is into NAME.machine.toml; every command takes that up beside NAME.
#
#   tracekit info NAME
#
# What needs which events:
#   time slices, who runs where ........ sched_switch
#   run delay, wakeup latency, waker ... sched_waking, sched_wakeup
#   run-queue length per CPU ........... the above and sched_migrate_task, sched_wakeup_new (an estimate)
#   births, programs, ends ............. sched_process_fork, sched_process_exec, sched_process_exit
#
# Times are printed in microseconds. saved_cmdlines_size: without it, names of many tasks are lost.
set -eu
[ $# -ge 1 ] || { echo "usage: sh tracefs.sh NAME [SECONDS]" >&2; exit 2; }
seconds=${2:-10}
case $1 in /*) name=$1 ;; *) name=$PWD/$1 ;; esac
#@machine.sh "$name"
tracing=/sys/kernel/tracing
[ -d $tracing/events ] || tracing=/sys/kernel/debug/tracing
cd $tracing
echo 0 > tracing_on
echo nop > current_tracer
echo mono > trace_clock
echo 65536 > buffer_size_kb
echo 16384 > saved_cmdlines_size
echo > set_event
for event in switch waking wakeup wakeup_new migrate_task process_fork process_exec process_exit; do
    echo sched:sched_$event >> set_event
done
echo > trace
echo 1 > tracing_on
sleep "$seconds"
echo 0 > tracing_on
cat trace > "$name.part"
echo > set_event
mv "$name.part" "$name"
