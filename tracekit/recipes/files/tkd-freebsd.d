#!/usr/sbin/dtrace -s
/*
 * tkd-freebsd.d: every scheduling decision of FreeBSD, in tracekit's line protocol (version 1).
 *
 *   dtrace -x temporal -s tkd-freebsd.d > trace.tkd 2>&1      (end with Ctrl-C; leave out -x temporal where it is refused)
 *   tracekit info trace.tkd
 *
 * Messages of dtrace (drops) belong into the file: they become losses. Columns, one TAB apart:
 *   T1 time cpu event  cpid ctid caddr cpri  spid stid saddr spri  x y z  ccomm scomm
 * c: the thread that runs, s: the thread the record is about, - : not stated.
 * off: x 1 if an idle thread leaves, 2 if one enters; y (td_state + 1) * 256 + td_inhibitors; z wait message or lock.
 * enq: y is not 0 for a preempted thread; the probe does not name the queue's CPU. ld: x CPU, y threads on it.
 *
 * What needs which probes:
 *   time slices, who runs where ........ on-cpu, off-cpu
 *   run delay, wakeup latency, waker ... off-cpu, wakeup
 *   exact run-queue length per CPU ..... load-change
 *   voluntary or not ................... off-cpu (state), preempt, sleep
 *   ends and births of threads ......... create, lwp-exit, exec-success
 *
 * Status: written from the documentation of the providers; not yet run on a real system. Probes that this release lacks
 * can be taken out (or try dtrace -Z); name them no more in #TKP then.
 */
#pragma D option quiet
#pragma D option bufsize=16m
#pragma D option switchrate=10hz
#pragma D option strsize=64

inline int TDF_IDLETD = 0x20;

dtrace:::BEGIN
{
	printf("#TKD\t1\tfreebsd\t%d\t%d\ttid\n", timestamp, walltimestamp);
	printf("#TKP\ton,off,enq,deq,wak,sur,pri,lnd,ld,slp,pre,rem,new,exe,xit,lwx\n");
}

profile:::tick-1sec
{
	printf("#TKT\t%d\t%d\n", timestamp, walltimestamp);
}

dtrace:::END
{
	printf("#TKE\t%d\t%d\n", timestamp, walltimestamp);
}

sched:::on-cpu
{
	printf("T1\t%d\t%d\ton\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t%d\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    curthread->td_flags & TDF_IDLETD ? 1 : 0, stringof(curthread->td_name));
}

sched:::off-cpu
{
	printf("T1\t%d\t%d\toff\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t%d\t%d\t%s\t%s\t%s\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    args[1]->p_pid, args[0]->td_tid, (uint64_t)args[0], args[0]->td_priority,
	    (curthread->td_flags & TDF_IDLETD ? 1 : 0) + (args[0]->td_flags & TDF_IDLETD ? 2 : 0),
	    ((int)curthread->td_state + 1) * 256 + curthread->td_inhibitors,
	    curthread->td_wmesg != NULL ? stringof(curthread->td_wmesg) :
	    curthread->td_lockname != NULL ? stringof(curthread->td_lockname) : "-",
	    stringof(curthread->td_name), stringof(args[0]->td_name));
}

sched:::enqueue
{
	printf("T1\t%d\t%d\tenq\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t-\t%d\t-\t%s\t%s\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    args[1]->p_pid, args[0]->td_tid, (uint64_t)args[0], args[0]->td_priority, args[3],
	    stringof(curthread->td_name), stringof(args[0]->td_name));
}

sched:::dequeue
{
	printf("T1\t%d\t%d\tdeq\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t-\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    args[1]->p_pid, args[0]->td_tid, (uint64_t)args[0], args[0]->td_priority,
	    stringof(curthread->td_name), stringof(args[0]->td_name));
}

sched:::wakeup
{
	printf("T1\t%d\t%d\twak\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t-\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    args[1]->p_pid, args[0]->td_tid, (uint64_t)args[0], args[0]->td_priority,
	    stringof(curthread->td_name), stringof(args[0]->td_name));
}

sched:::surrender
{
	printf("T1\t%d\t%d\tsur\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t-\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    args[1]->p_pid, args[0]->td_tid, (uint64_t)args[0], args[0]->td_priority,
	    stringof(curthread->td_name), stringof(args[0]->td_name));
}

sched:::change-pri
{
	printf("T1\t%d\t%d\tpri\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t%d\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    args[1]->p_pid, args[0]->td_tid, (uint64_t)args[0], args[0]->td_priority, args[2],
	    stringof(curthread->td_name), stringof(args[0]->td_name));
}

sched:::lend-pri
{
	printf("T1\t%d\t%d\tlnd\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t%d\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    args[1]->p_pid, args[0]->td_tid, (uint64_t)args[0], args[0]->td_priority, args[2],
	    stringof(curthread->td_name), stringof(args[0]->td_name));
}

sched:::load-change
{
	printf("T1\t%d\t%d\tld\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t%d\t%d\t-\t%s\t-\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    args[0], args[1], stringof(curthread->td_name));
}

sched:::sleep
{
	printf("T1\t%d\t%d\tslp\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t-\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    stringof(curthread->td_name));
}

sched:::preempt
{
	printf("T1\t%d\t%d\tpre\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t-\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    stringof(curthread->td_name));
}

sched:::remain-cpu
{
	printf("T1\t%d\t%d\trem\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t-\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    stringof(curthread->td_name));
}

proc:::create
{
	printf("T1\t%d\t%d\tnew\t%d\t%d\t0x%x\t%d\t%d\t%d\t-\t-\t-\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    args[0]->p_pid, args[0]->p_threads.tqh_first->td_tid, stringof(curthread->td_name),
	    stringof(args[0]->p_comm));
}

proc:::exec-success
{
	printf("T1\t%d\t%d\texe\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t-\t-\t%s\t%s\t-\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    stringof(args[0]), stringof(curthread->td_name));
}

proc:::exit
{
	printf("T1\t%d\t%d\txit\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t%d\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    (int)arg0, stringof(curthread->td_name));
}

proc:::lwp-exit
{
	printf("T1\t%d\t%d\tlwx\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t-\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, curthread->td_tid, (uint64_t)curthread, curthread->td_priority,
	    stringof(curthread->td_name));
}
