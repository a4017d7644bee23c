#!/usr/sbin/dtrace -s
/*
 * tkd-illumos.d: every scheduling decision of illumos or Solaris, in tracekit's line protocol (version 1).
 *
 *   dtrace -x temporal -s tkd-illumos.d > trace.tkd 2>&1      (end with Ctrl-C; leave out -x temporal where it is refused)
 *   tracekit info trace.tkd
 *
 * Messages of dtrace (drops) belong into the file: they become losses. Columns, one TAB apart:
 *   T1 time cpu event  cpid ctid caddr cpri  spid stid saddr spri  x y z  ccomm scomm
 * c: the thread that runs, s: the thread the record is about, - : not stated.
 * Threads are distinguished by address: LWP numbers are per process, and kernel threads have none.
 * off: x what it sleeps on, y system call, z state letter; enq, deq: x the queue's CPU, y front of queue; z class.
 *
 * What needs which probes:
 *   time slices, who runs where ........ on-cpu, off-cpu
 *   run delay, wakeup latency, waker ... off-cpu, wakeup
 *   exact run-queue length per CPU ..... enqueue, dequeue, off-cpu
 *   voluntary or not ................... off-cpu (state), preempt, sleep
 *   ends and births of threads ......... lwp-create, lwp-exit, exec-success
 *
 * Status: written from the documentation of the providers; not yet run on a real system. Probes that this release lacks
 * can be taken out (or try dtrace -Z); name them no more in #TKP then.
 */
#pragma D option quiet
#pragma D option bufsize=16m
#pragma D option switchrate=10hz
#pragma D option strsize=64

dtrace:::BEGIN
{
	printf("#TKD\t1\tillumos\t%d\t%d\taddr\n", timestamp, walltimestamp);
	printf("#TKP\ton,off,enq,deq,wak,sur,pri,slp,pre,rem,new,lwc,exe,xit,lwx\n");
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
	printf("T1\t%d\t%d\ton\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t%d\t-\t%s\t%s\t-\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri,
	    curlwpsinfo->pr_flag & PR_IDLE ? 1 : 0, stringof(curlwpsinfo->pr_clname), execname);
}

sched:::off-cpu
{
	printf("T1\t%d\t%d\toff\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t%d\t%d\t%c\t%s\t%s\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, args[1]->pr_pid,
	    args[0]->pr_lwpid, args[0]->pr_addr, args[0]->pr_pri, curlwpsinfo->pr_stype,
	    curlwpsinfo->pr_syscall, curlwpsinfo->pr_sname, execname, stringof(args[1]->pr_fname));
}

sched:::enqueue
{
	printf("T1\t%d\t%d\tenq\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t%d\t%d\t%s\t%s\t%s\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, args[1]->pr_pid,
	    args[0]->pr_lwpid, args[0]->pr_addr, args[0]->pr_pri, args[2]->cpu_id, args[3],
	    stringof(args[0]->pr_clname), execname, stringof(args[1]->pr_fname));
}

sched:::dequeue
{
	printf("T1\t%d\t%d\tdeq\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t%d\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, args[1]->pr_pid,
	    args[0]->pr_lwpid, args[0]->pr_addr, args[0]->pr_pri, args[2]->cpu_id, execname,
	    stringof(args[1]->pr_fname));
}

sched:::wakeup
{
	printf("T1\t%d\t%d\twak\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t-\t-\t%s\t%s\t%s\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, args[1]->pr_pid,
	    args[0]->pr_lwpid, args[0]->pr_addr, args[0]->pr_pri, stringof(args[0]->pr_clname),
	    execname, stringof(args[1]->pr_fname));
}

sched:::surrender
{
	printf("T1\t%d\t%d\tsur\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t-\t-\t%s\t%s\t%s\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, args[1]->pr_pid,
	    args[0]->pr_lwpid, args[0]->pr_addr, args[0]->pr_pri, stringof(args[0]->pr_clname),
	    execname, stringof(args[1]->pr_fname));
}

sched:::change-pri
{
	printf("T1\t%d\t%d\tpri\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t%d\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, args[1]->pr_pid,
	    args[0]->pr_lwpid, args[0]->pr_addr, args[0]->pr_pri, args[2], execname,
	    stringof(args[1]->pr_fname));
}

sched:::sleep
{
	printf("T1\t%d\t%d\tslp\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t%d\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri,
	    curlwpsinfo->pr_stype, execname);
}

sched:::preempt
{
	printf("T1\t%d\t%d\tpre\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t%d\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri,
	    curlwpsinfo->pr_stype, execname);
}

sched:::remain-cpu
{
	printf("T1\t%d\t%d\trem\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t%d\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri,
	    curlwpsinfo->pr_stype, execname);
}

proc:::create
{
	printf("T1\t%d\t%d\tnew\t%d\t%d\t0x%x\t%d\t%d\t-\t-\t-\t-\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, args[0]->pr_pid,
	    execname, stringof(args[0]->pr_fname));
}

proc:::lwp-create
{
	printf("T1\t%d\t%d\tlwc\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t-\t-\t-\t%s\t%s\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, args[1]->pr_pid,
	    args[0]->pr_lwpid, args[0]->pr_addr, args[0]->pr_pri, execname,
	    stringof(args[1]->pr_fname));
}

proc:::exec-success
{
	printf("T1\t%d\t%d\texe\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t-\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, execname);
}

proc:::exit
{
	printf("T1\t%d\t%d\txit\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t%d\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, (int)arg0,
	    execname);
}

proc:::lwp-exit
{
	printf("T1\t%d\t%d\tlwx\t%d\t%d\t0x%x\t%d\t-\t-\t-\t-\t-\t-\t-\t%s\t-\n",
	    timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, execname);
}

/*
 * The clock tick fires hz times a second on every CPU. To record it, take this clause out of the comment and add tck to
 * #TKP.
 *
 *   sched:::tick
 *   {
 *           printf("T1\t%d\t%d\ttck\t%d\t%d\t0x%x\t%d\t%d\t%d\t0x%x\t%d\t-\t-\t%s\t%s\t%s\n",
 *               timestamp, cpu, pid, tid, curlwpsinfo->pr_addr, curlwpsinfo->pr_pri, args[1]->pr_pid,
 *               args[0]->pr_lwpid, args[0]->pr_addr, args[0]->pr_pri, stringof(args[0]->pr_clname),
 *               execname, stringof(args[1]->pr_fname));
 *   }
 */
