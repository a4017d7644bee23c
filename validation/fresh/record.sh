#!/bin/sh
# Records work of every day on this machine, and the same set up otherwise: what `python -m validation.fresh`
# holds predictions against. `record.sh DIR [ROUNDS]`, as root, some 45 s a workload and round, nothing
# beside it; it wants perf, cc, make, gzip, coreutils, python3, chrt, taskset and tracekit on the path.
# node, javac, go, rustc, PostgreSQL, Redis (redis-server and redis-benchmark), and nginx with wrk, where they are
# there, make one more workload each; the CPU controller of cgroups, where it may be used, groups.
# DIR/pairs.tsv names what to compare. WORKLOADS and VARIANTS take some of them. With no round the
# folder is only prepared; with PREPARED it was, perhaps elsewhere, and neither cc nor tracekit is wanted.
set -eu
length=2.6
# One load for each CPU.
cpus=$(seq "$(nproc)")
postgres=$(ls -d /usr/lib/postgresql/*/bin/postgres 2> /dev/null | tail -n 1)
bin=${postgres%/*}
# PostgreSQL does not run as root.
user='setpriv --reuid=65534 --regid=65534 --clear-groups'

# One workload: $1 its name, $2 what is put before the commands in the background, $3 before the others.
work() {
    case $1 in
    build) (cd src; rm -f ./*.o; $2 make -s -j4 &) ;;
    zip | pipe | pool | poll | commands | java | go | lock | meet | threads | messages) for i in $cpus; do $2 timeout $length sh -c 'while :; do gzip -9 < text; done' > /dev/null & done ;;
    web | node | postgres | redis | nginx) for i in $cpus more; do $2 timeout $length sh -c 'while :; do sha512sum text; done' > /dev/null & done ;;
    esac
    case $1 in
    build | zip) $3 ./probe 1 $length & $3 ./probe 2 $length & ;;
    web) $3 timeout 3 python3 server.py & sleep 1; python3 load.py 1.5 & ;;
    node) $3 timeout 3 node server.js & sleep 1; python3 load.py 1.5 & ;;
    postgres)
        $3 timeout 3 $user "$postgres" -D db -k "$PWD/db" -h '' > /dev/null 2>&1 &
        sleep 0.6
        $3 $user "$bin/pgbench" -h "$PWD/db" -U nobody -c 4 -T 2 postgres > /dev/null 2>&1 & ;;
    redis)
        $3 timeout $length redis-server --port 8767 --save '' > /dev/null &
        sleep 0.6
        $3 timeout 2 redis-benchmark -p 8767 -c 8 -n 100000000 -t get > /dev/null & ;;
    nginx)
        $3 timeout $length nginx -p "$PWD" -e stderr -c nginx.conf 2> /dev/null &
        sleep 0.6
        wrk -t 2 -c 8 -d 2 -H 'Accept-Encoding: gzip' http://127.0.0.1:8768/page > /dev/null & ;;
    java) $3 timeout $length java Work & ;;
    go) $3 timeout $length ./gowork & ;;
    pipe) ($3 timeout $length cat text text text | $3 timeout $length tr a b | $3 timeout $length md5sum > /dev/null) & ;;
    pool) $3 timeout $length python3 pool.py & ;;
    poll) $3 timeout $length python3 poll.py & ;;
    lock) $3 ./lock $length & ;;
    meet) $3 ./meet 2.3 & ;;
    threads) $3 ./threads 2.3 & ;;
    messages) $3 timeout $length perf bench sched messaging -g 1 -l 1000000 > /dev/null & ;;
    commands) $3 timeout $length bash -c 'while :; do /bin/true; date > /dev/null; echo a | cat > /dev/null; done' & ;;
    esac
    sleep $length
}

script=$(realpath "$0")
mkdir -p "$1"
cd "$1"
if [ -n "${WORK:-}" ]; then
    work "$WORK" "$BACK" "$FRONT"
    exit
fi
rounds=${2:-2}
workloads='build zip web pipe pool poll commands lock meet messages'

# Makes what the workloads want.
prepare() {
cat > probe.c <<'C'
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
int main(int argc, char **argv) {
    char name[16];
    volatile unsigned long x = 0;
    double end = now() + atof(argv[2]);
    srand48(atoi(argv[1]));
    snprintf(name, sizeof name, "probe%s", argv[1]);
    prctl(PR_SET_NAME, name, 0, 0, 0);
    while (argc > 2 && now() < end) {
        struct timespec t = {0, -log(1 - drand48()) * 8e6};
        nanosleep(&t, 0);
        for (unsigned long i = 0, n = (0.5 + 1.5 * drand48()) * 1e6; i < n; i++) x += i;
    }
}
C
cc -O1 -o probe probe.c -lm
cat > lock.c <<'C'
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void work(double us) { for (volatile unsigned long x = 0; x < us * 500; x++) ; }
static double end;
static void *one(void *given) {
    unsigned short r[3] = {1, 2, (unsigned short)(long)given};
    while (now() < end) {
        work(50 + 100 * erand48(r));
        pthread_mutex_lock(&lock);
        work(10 + 20 * erand48(r));
        pthread_mutex_unlock(&lock);
    }
    return 0;
}
int main(int argc, char **argv) {
    pthread_t t[3];
    end = now() + (argc > 1 ? atof(argv[1]) : 2);
    for (long i = 0; i < 3; i++) pthread_create(&t[i], 0, one, (void *)i);
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
}
C
cc -O1 -pthread -o lock lock.c
cat > meet.c <<'C'
// Four that go on together each time when the last of them has done its part.
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
static pthread_barrier_t all;
static volatile int done;
static double end;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void *one(void *given) {
    unsigned short r[3] = {1, 2, (unsigned short)(long)given};
    while (!done) {
        for (volatile unsigned long x = 0; x < (200 + 2000 * erand48(r)) * 500; x++) ;
        if (!given && now() > end) done = 1;
        pthread_barrier_wait(&all);
    }
    return 0;
}
int main(int argc, char **argv) {
    pthread_t t[4];
    end = now() + (argc > 1 ? atof(argv[1]) : 2);
    pthread_barrier_init(&all, 0, 4);
    for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, one, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
}
C
cc -O1 -pthread -o meet meet.c
head -c 30000000 /dev/urandom | base64 > text
mkdir -p src
for i in $(seq 40); do
    for k in $(seq 40); do
        echo "int f$k(int a, int b) { int s = 0; for (int i = 0; i < a; i++) for (int j = 0; j < b; j++) s += (i * j) ^ $k; return s; }"
    done > src/a$i.c
done
printf 'O = $(patsubst %%.c,%%.o,$(wildcard *.c))\nall: $(O)\n' > src/Makefile
cat > server.py <<'P'
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        sum(i * i for i in range(12000))
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8765), H).serve_forever()
P
cat > load.py <<'P'
import http.client, random, sys, threading, time
# It keeps its policy where the server's is changed.
open("/proc/self/comm", "w").write("load")
end = time.time() + float(sys.argv[1])
def one(i):
    c, r = http.client.HTTPConnection("127.0.0.1", 8765), random.Random(i)
    while time.time() < end:
        time.sleep(r.expovariate(50)); c.request("GET", "/"); c.getresponse().read()
threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
P
cat > pool.py <<'P'
import multiprocessing, time
def work(n): return sum(range(20000))
if __name__ == "__main__":
    end = time.time() + 2.3
    with multiprocessing.Pool(3) as pool:
        while time.time() < end: pool.map(work, range(40), chunksize=2); time.sleep(0.005)
P
cat > poll.py <<'P'
# One that gives each of three workers another piece as soon as it is done.
import multiprocessing, random, time
from multiprocessing.connection import wait
def work(pipe):
    while True: pipe.send(sum(range(pipe.recv())))
if __name__ == "__main__":
    ours, theirs = zip(*(multiprocessing.Pipe() for i in range(3)))
    for pipe in theirs: multiprocessing.Process(target=work, args=(pipe,), daemon=True).start()
    draw, end = random.Random(1), time.time() + 2.3
    for pipe in ours: pipe.send(2000)
    while time.time() < end:
        for pipe in wait(ours): pipe.recv(); sum(range(draw.randrange(300, 3000))); pipe.send(draw.randrange(500, 20000))
P
if command -v node > /dev/null; then
    workloads="$workloads node"
    cat > server.js <<'J'
require("http").createServer((request, response) => {
    let sum = 0;
    for (let i = 0; i < 300000; i++) sum += i * i % 7;
    require("fs").readFile("server.js", () => response.end(String(sum)));
}).listen(8765, "127.0.0.1");
J
fi
if command -v javac > /dev/null; then
    workloads="$workloads java"
    cat > Work.java <<'J'
import java.util.*;
import java.util.concurrent.*;
class Work {
    static int one(int n) {
        Map<Integer, String> found = new HashMap<>();
        for (int i = 0; i < 2000; i++) found.put(i * n % 4001, "x" + i);
        return found.size();
    }
    public static void main(String[] given) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        long end = System.nanoTime() + 2_300_000_000L;
        for (int n = 1; System.nanoTime() < end; n++) {
            List<Callable<Integer>> jobs = new ArrayList<>();
            for (int i = 0; i < 6; i++) { int k = n + i; jobs.add(() -> one(k)); }
            pool.invokeAll(jobs);
            Thread.sleep(5);
        }
        pool.shutdown();
    }
}
J
    javac Work.java
fi
if command -v go > /dev/null; then
    workloads="$workloads go"
    cat > gowork.go <<'J'
package main

import (
	"crypto/sha256"
	"time"
)

func main() {
	work, done := make(chan int, 16), make(chan [32]byte, 16)
	block := make([]byte, 100000)
	for i := 0; i < 4; i++ {
		go func() {
			for range work {
				done <- sha256.Sum256(block)
			}
		}()
	}
	for end := time.Now().Add(2300 * time.Millisecond); time.Now().Before(end); time.Sleep(3 * time.Millisecond) {
		for i := 0; i < 8; i++ {
			work <- i
		}
		for i := 0; i < 8; i++ {
			<-done
		}
	}
}
J
    go build -o gowork gowork.go
fi
if command -v rustc > /dev/null; then
    workloads="$workloads threads"
    cat > threads.rs <<'R'
// Requests that come at random, a dispatcher, and eight threads that share a queue under a lock.
use std::collections::VecDeque;
use std::sync::{mpsc, Arc, Condvar, Mutex};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

fn random(x: &mut u64) -> f64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    (*x >> 11) as f64 / (1u64 << 53) as f64
}

fn work(us: f64) {
    let mut x = 1u64;
    for i in 0..(us * 500.0) as u64 {
        x = std::hint::black_box(x.wrapping_mul(6364136223846793005).wrapping_add(i));
    }
}

fn main() {
    let length: f64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let queue = Arc::new((Mutex::new(VecDeque::new()), Condvar::new()));
    let (done, answers) = mpsc::channel();
    for _ in 0..8 {
        let (queue, done) = (queue.clone(), done.clone());
        let one = move || loop {
            let mut waiting = queue.0.lock().unwrap();
            while waiting.is_empty() {
                waiting = queue.1.wait(waiting).unwrap();
            }
            let us = waiting.pop_front().unwrap();
            drop(waiting);
            work(us);
            done.send(us).unwrap();
        };
        Builder::new().name("thread".into()).spawn(one).unwrap();
    }
    let (send, requests) = mpsc::channel();
    let dispatch = move || {
        for us in requests {
            work(20.0);
            let mut waiting = queue.0.lock().unwrap();
            waiting.push_back(us);
            queue.1.notify_one();
        }
    };
    Builder::new().name("dispatcher".into()).spawn(dispatch).unwrap();
    let (begin, end) = (Instant::now(), Duration::from_secs_f64(length));
    let source = move || {
        let (mut x, mut at) = (88172645463325252, Duration::ZERO);
        while at < end {
            at += Duration::from_secs_f64(-(1.0 - random(&mut x)).ln() * 2e-3);
            thread::sleep(at.saturating_sub(begin.elapsed()));
            send.send(500.0 + 2000.0 * random(&mut x)).unwrap();
        }
    };
    Builder::new().name("source".into()).spawn(source).unwrap();
    while begin.elapsed() < end {
        let _ = answers.recv_timeout(end.saturating_sub(begin.elapsed()));
    }
}
R
    rustc -O -o threads threads.rs
fi
if [ -n "$postgres" ]; then
    workloads="$workloads postgres"
    rm -rf db
    mkdir db
    chown 65534:65534 db
    $user "$bin/initdb" -D db -U nobody -A trust > /dev/null
    $user "$bin/pg_ctl" -D db -o "-k $PWD/db -h ''" -w start > /dev/null
    $user "$bin/pgbench" -h "$PWD/db" -U nobody -i -s 5 -q postgres > /dev/null 2>&1
    $user "$bin/pg_ctl" -D db -w stop > /dev/null
fi
if command -v redis-server > /dev/null && command -v redis-benchmark > /dev/null; then
    workloads="$workloads redis"
fi
if command -v nginx > /dev/null && command -v wrk > /dev/null; then
    workloads="$workloads nginx"
    head -c 60000 text > page
    cat > nginx.conf <<'N'
daemon off;
user root;
worker_processes 2;
pid nginx.pid;
events { worker_connections 64; }
http {
    access_log off;
    gzip on;
    gzip_types *;
    server { listen 127.0.0.1:8768; root .; }
}
N
fi
tracekit recipes machine > machine.sh
}

if [ -z "${PREPARED:-}" ]; then prepare; fi

# Two groups, `tkback` and `tkfront`, side by side at the root of cgroups, version 1 or 2.
groups=$(awk '$3 == "cgroup" && ("," $4 ",") ~ /,cpu,/ { print $2; exit }' /proc/mounts)
[ -n "$groups" ] || groups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
remove_groups() { rmdir "$groups/tkback" "$groups/tkfront" 2> /dev/null || true; }
trap remove_groups EXIT
[ -f "$groups/cpu.shares" ] || echo +cpu > "$groups/cgroup.subtree_control" 2> /dev/null || true
mkdir -p "$groups/tkback" "$groups/tkfront" 2> /dev/null || true
# What groups can be asked: the weight of tkback, its CPU time of 100 ms in us, and whether it is idle.
limit() {
    if [ -f "$groups/tkback/cpu.shares" ]; then
        echo 0 > "$groups/tkback/cpu.idle"
        echo $(($1 * 1024 / 100)) > "$groups/tkback/cpu.shares"
        echo "$2" > "$groups/tkback/cpu.cfs_quota_us"
    else
        echo 0 > "$groups/tkback/cpu.idle"
        echo "$1" > "$groups/tkback/cpu.weight"
        if [ "$2" = -1 ]; then echo max 100000; else echo "$2" 100000; fi > "$groups/tkback/cpu.max"
    fi
    [ "$3" = 0 ] || echo 1 > "$groups/tkback/cpu.idle"
}
cat > within.sh <<'S'
echo $$ > "$1/cgroup.procs"
shift
exec "$@"
S
variants='default nice19 batch idle cpu1 fifo'
if [ -f "$groups/tkback/cpu.shares" ] || [ -f "$groups/tkback/cpu.weight" ]; then
    variants="$variants groups groupweight groupquota groupidle"
fi

printf 'a\tb\tworkload\tset\n' > pairs.tsv
for round in $(seq "$rounds"); do
    other=$((round % rounds + 1))
    for w in ${WORKLOADS:-$workloads}; do
        case $w in
        build) back='/^(make|cc|cc1|as|sh)$/' front='probe*' ;;
        zip) back='gzip*' front='probe*' ;;
        web) back='sha512sum*' front='python*' ;;
        pipe) back='gzip*' front='/^(cat|tr|md5sum)$/' ;;
        pool | poll) back='gzip*' front='python*' ;;
        lock) back='gzip*' front='lock*' ;;
        meet) back='gzip*' front='meet*' ;;
        node) back='sha512sum*' front='/^(node|libuv|V8|Delayed|Signal)/' ;;
        java) back='gzip*' front='/^(java|pool-|G[C1] |VM |C[12] |Reference|Finalizer|Signal|Service|Monitor|Notification|Common|Attach)/' ;;
        go) back='gzip*' front='gowork' ;;
        threads) back='gzip*' front='/^(threads?|dispatcher|source)$/' ;;
        messages) back='gzip*' front='/^(perf|sched-messaging)$/' ;;
        postgres) back='sha512sum*' front='/^(postgres|pgbench)$/' ;;
        redis) back='sha512sum*' front='/^(redis-|bio_|jemalloc)/' ;;
        nginx) back='sha512sum*' front='nginx' ;;
        commands) back='gzip*' front='/^(bash|true|date|cat)$/' ;;
        esac
        for v in ${VARIANTS:-$variants}; do
            before='' first='' set='' base=default
            case $v in
            group*)
                base=groups
                before="sh $PWD/within.sh $groups/tkback" first="sh $PWD/within.sh $groups/tkfront"
                limit 100 -1 0 ;;
            esac
            case $v in
            nice19) before='nice -n 19' set="$back: nice=19" ;;
            batch) before='chrt -b 0' set="$back: policy=batch" ;;
            idle) before='chrt -i 0' set="$back: policy=idle" ;;
            cpu1) before='taskset -c 1' set="$back: cpus=1" ;;
            fifo) first='chrt -f 50' set="$front: policy=fifo,prio=50" ;;
            groupweight) limit 25 -1 0; set='group:tkback: weight=25' ;;
            groupquota) limit 100 50000 0; set='group:tkback: quota=50ms/100ms' ;;
            groupidle) limit 100 -1 1; set='group:tkback: idle=on' ;;
            esac
            name=$w-$v-$round
            (sleep 0.3; sh machine.sh "$name.data" > machine.log 2>&1) &
            WORK=$w BACK=$before FRONT=$first perf sched record -m 4096 -o "$name.data" -- sh "$script" . > perf.log 2>&1
            wait
            pkill -f 'server[.](py|js)' || true
            printf '%s-%s-%s.data\t%s-%s-%s.data\t%s\t%s\n' "$w" "$base" "$other" "$w" "$v" "$round" "$w" "$set" >> pairs.tsv
        done
    done
done
