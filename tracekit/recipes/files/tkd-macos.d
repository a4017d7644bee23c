#!/usr/sbin/dtrace -s
/*
 * tkd-macos.d: every scheduling decision of macOS, in tracekit's line protocol (version 1).
 *
 *   dtrace -x temporal -s tkd-macos.d > trace.tkd 2>&1      (end with Ctrl-C; leave out -x temporal where it is refused)
 *   tracekit info trace.tkd
 *
 * Messages of dtrace (drops) belong into the file: they become losses. Columns, one TAB apart:
 *   T1 time cpu event  cpid ctid caddr cpri  spid stid saddr spri  x y z  ccomm scomm
 * c: the thread that runs, s: the thread the record is about, - : not stated.
 * System Integrity Protection must allow dtrace (csrutil enable --without dtrace, from the recovery system).
 * off: x 1 if an idle thread leaves, 2 if one enters; y the state bits of the leaving thread. Processes of the other
 * thread are left out: newer kernels hand the current process to the probe, whichever thread it is about.
 * There are no run-queue probes: queue lengths are estimates.
 *
 * What needs which probes:
 *   time slices, who runs where ........ on-cpu, off-cpu
 *   run delay, wakeup latency, waker ... off-cpu, wakeup
 *   ends and births of threads ......... create, lwp-exit, exec-success
 *
 * Status: written from the documentation of the providers; not yet run on a real system. Probes that this release lacks
 * can be taken out (or try dtrace -Z); name them no more in #TKP then.
 */
#pragma D option quiet
#pragma D option bufsize=16m
#pragma D option switchrate=10hz
#pragma D option strsize=64

inline int TH_IDLE = 0x80;

dtrace:::BEGIN
{
	printf("#TKD\t1\tmacos\t%d\t%d\ttid\n", timestamp, walltimestamp);
	printf("#TKP\ton,off,wak,new,exe,xit,lwx\n");
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
	    timestamp, cpu, pid, tid, (uint64_t)curthread, curthread->sched_pri,
	    curthread->state & TH_IDLE ? 1 : 0, execname);
}

sched:::off-cpu
{
	printf("T1\t%d\t%d\toff\t%d\t%d\t0x%x\t%d\t-\t%d\t-\t%d\t%d\t%d\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, (uint64_t)curthread, curthread->sched_pri,
	    ((struct thread *)arg0)->thread_id, ((struct thread *)arg0)->sched_pri,
	    (curthread->state & TH_IDLE ? 1 : 0) + (((struct thread *)arg0)->state & TH_IDLE ? 2 : 0),
	    curthread->state, execname);
}

sched:::wakeup
{
	printf("T1\t%d\t%d\twak\t%d\t%d\t0x%x\t%d\t-\t%d\t-\t%d\t-\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, (uint64_t)curthread, curthread->sched_pri,
	    ((struct thread *)arg0)->thread_id, ((struct thread *)arg0)->sched_pri, execname);
}

proc:::create
{
	printf("T1\t%d\t%d\tnew\t%d\t%d\t0x%x\t%d\t%d\t-\t-\t-\t-\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, tid, (uint64_t)curthread, curthread->sched_pri, args[0]->pr_pid,
	    execname, stringof(args[0]->pr_fname));
}

proc:::exec-success
{
	printf("T1\t%d\t%d\texe\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t-\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, (uint64_t)curthread, curthread->sched_pri, execname);
}

proc:::exit
{
	printf("T1\t%d\t%d\txit\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t%d\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, (uint64_t)curthread, curthread->sched_pri, (int)arg0,
	    execname);
}

proc:::lwp-exit
{
	printf("T1\t%d\t%d\tlwx\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t-\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, (uint64_t)curthread, curthread->sched_pri, execname);
}
