#!/bin/sh
# Scheduler trace without any tool (Linux): the kernel's own files. Run as root: sh tracefs.sh [SECONDS] > trace.txt
#
#   tracekit info trace.txt
#
# What needs which events:
#   time slices, who runs where ........ sched_switch
#   run delay, wakeup latency, waker ... sched_waking, sched_wakeup
#   run-queue length per CPU ........... the above and sched_migrate_task, sched_wakeup_new (an estimate)
#   births, programs, ends ............. sched_process_fork, sched_process_exec, sched_process_exit
#
# Times are printed in microseconds. saved_cmdlines_size: without it, names of many tasks are lost.
set -eu
seconds=${1:-10}
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
cat trace
echo > set_event
