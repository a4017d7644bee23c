/* Does this kernel wake a task on the idle CPU of two?
 *
 *     cc -O1 -pthread -o spread validation/spread.c && ./spread
 *
 * wants two CPUs and nothing else to do. A waker on CPU 0 wakes a task (futex) every 20 ms, and goes on for
 * 100 us. The task runs for 0.3 ms each time, on CPU 0 or 1, and may run on both when it is woken. A third
 * thread uses a CPU for a share of each 2 ms. Linux takes an idle CPU that shares the cache
 * (select_idle_sibling), whatever that share.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 60, PERIOD_US = 2000, EVERY_US = 20000, WORK_US = 300, GOES_ON_US = 100 };
enum { GETS_READY, SLEEPS, RAN };

static atomic_int word, state, where, last, used_cpu, used_us;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static void run_us(double length) {
    for (double end = now_us() + length; now_us() < end;) { }
}

static void bind_to(int first, int last) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = first; cpu <= last; cpu++) CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *woken(void *unused) {
    for (;;) {
        bind_to(last, last);
        run_us(WORK_US);
        bind_to(0, 1);
        state = SLEEPS;
        while (!word) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        word = 0;
        where = sched_getcpu();
        state = RAN;
        while (state == RAN) usleep(200);
    }
    return unused;
}

static void *load(void *unused) {
    for (;;) {
        bind_to(used_cpu, used_cpu);
        run_us(used_us);
        usleep(PERIOD_US - used_us);
    }
    return unused;
}

/* How often the woken task runs on its waker's CPU. */
static int on_wakers(int ran_on, int cpu, int percent) {
    int found = 0;
    last = ran_on;
    used_cpu = cpu;
    used_us = PERIOD_US * percent / 100;
    usleep(300000); /* averages forget half in 32 ms */
    for (int i = 0; i < TIMES; i++) {
        while (state != SLEEPS) usleep(200);
        usleep(EVERY_US);
        word = 1;
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        run_us(GOES_ON_US);
        while (state != RAN) usleep(50);
        found += where == 0;
        state = GETS_READY;
    }
    return found;
}

int main(void) {
    static const int used[][2] = {{0, 0}, {0, 20}, {0, 40}, {0, 50}, {0, 60}, {0, 70}, {0, 80}, {0, 90}, {1, 50}, {1, 90}};
    pthread_t threads[2];
    bind_to(0, 0);
    pthread_create(&threads[0], NULL, woken, NULL);
    pthread_create(&threads[1], NULL, load, NULL);
    for (unsigned i = 0; i < sizeof used / sizeof *used; i++) {
        int cpu = used[i][0], percent = used[i][1];
        printf("CPU %d used for %2d %% by another:", cpu, percent);
        for (int ran_on = 0; ran_on < 2; ran_on++)
            printf(" last on CPU %d, woken on CPU 0 %2d of %d times%s", ran_on, on_wakers(ran_on, cpu, percent), TIMES,
                   ran_on ? "\n" : ";");
        fflush(stdout);
    }
    return 0;
}
