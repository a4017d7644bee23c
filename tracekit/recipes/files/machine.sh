#!/bin/sh
# The machine beside the trace (Linux): sh machine.sh NAME writes NAME.machine.toml
#
#   tracekit info NAME
#
# What it records: kernel and HZ, scheduler features and tunables, CPUs with their cores, caches, nodes and capacities,
# cgroups with weights and quotas, and of each task its cgroup, policy, nice value, affinity and slice. Replays take HZ,
# affinities, policies, groups, the scheduler's settings, capacities and isolated CPUs from it. Needs sh, awk and find.
# Run it as root, just before the recording, or while the load runs: what cannot be read is named in the file. It reads
# only; of the kernel's command line it keeps what concerns the scheduler.
set -eu
LC_ALL=C
export LC_ALL
[ $# = 1 ] || { echo "usage: sh machine.sh NAME    (writes NAME.machine.toml beside the trace NAME)" >&2; exit 2; }
root=${MACHINE_ROOT:-} # another machine's /proc and /sys
out=$1.machine.toml
part=$out.$$
trap 'rm -f "$part"' EXIT
trap 'exit 1' HUP INT TERM
release=$(cat "$root/proc/sys/kernel/osrelease")

# HZ: from the kernel's configuration; else the jiffies of a second.
config() {
    if [ -r "$root/proc/config.gz" ] && gzip -dc "$root/proc/config.gz" 2>/dev/null; then return; fi
    for file in "$root/boot/config-$release" "$root/lib/modules/$release/config" \
        "$root/lib/modules/$release/build/.config" "$root/usr/lib/modules/$release/config"; do
        if [ -r "$file" ]; then
            cat "$file"
            return
        fi
    done
}
matter='HZ|HZ_PERIODIC|NO_HZ_IDLE|NO_HZ_FULL|PREEMPT[A-Z_]*|SCHED_[A-Z_]*|FAIR_GROUP_SCHED|CFS_BANDWIDTH'
settings=$(config | grep -E "^CONFIG_($matter)=" || :)
hz=$(echo "$settings" | sed -n 's/^CONFIG_HZ=\([0-9][0-9]*\)$/\1/p')
hz_from="kernel configuration"
jiffies() { awk '/^now at/ { now = $3 } /^jiffies:/ { print $2, now; exit }' "$root/proc/timer_list" 2>/dev/null || :; }
if [ -z "$hz" ]; then
    first=$(jiffies)
    sleep 1
    hz=$(echo "$first $(jiffies)" | awk 'NF == 4 && $4 > $2 {
        seen = ($3 - $1) * 1e9 / ($4 - $2)
        n = split("24 32 48 64 100 128 200 250 256 300 500 512 600 1000 1024 1200", rates, " ")
        for (i = 1; i <= n; i++) if (seen > rates[i] * 0.99 && seen < rates[i] * 1.01) print rates[i]
    }' | head -n 1)
    hz_from="jiffies of one second in /proc/timer_list"
fi

debug=$(awk '$3 == "debugfs" { print $2; exit }' "$root/proc/mounts" 2>/dev/null || :)
debug=$root${debug:-/sys/kernel/debug}
v1=$(awk '$3 == "cgroup" && ("," $4 ",") ~ /,cpu,/ { print $2; exit }' "$root/proc/mounts" 2>/dev/null || :)
v2=$(awk '$3 == "cgroup2" { print $2; exit }' "$root/proc/mounts" 2>/dev/null || :)
if [ -n "$v1" ]; then groups=$root$v1 version=1; else groups=$root$v2 version=2; fi

# One line per thing to look at, then one awk that reads them all: no process per task.
list() {
    for d in "$root"/sys/devices/system/cpu/cpu[0-9]*; do [ -d "$d" ] && echo "cpu $d"; done
    if [ -n "$v1$v2" ]; then find "$groups" -type d 2>/dev/null | sed 's/^/group /'; fi
    for d in "$root"/proc/[0-9]*/task/[0-9]*; do [ -r "$d/stat" ] && echo "task $d"; done
    for f in "$debug"/sched/* "$debug"/sched_features "$root"/proc/sys/kernel/sched_*; do
        [ -f "$f" ] && echo "tunable $f"
    done
    return 0
}

list | awk -v root="$root" -v release="$release" -v hz="$hz" -v hz_from="$hz_from" -v settings="$settings" \
    -v debug="$debug" -v groups="$groups" -v version="$version" -v machine="$(uname -m)" \
    -v written="$(date -u +%Y-%m-%dT%H:%M:%SZ)" '
# The first line of a file; "" when it cannot be read.
function first(file,    line) {
    line = ""
    if ((getline line < file) < 1) line = ""
    close(file)
    return line
}
# Text as TOML writes it. Built by hand: awks differ in what a backslash means in gsub.
function text(s,    i, c, out) {
    gsub(/[\001-\037\177]/, "?", s)
    if (s !~ /["\\]/) return "\"" s "\""
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        out = out (c == "\"" || c == "\\" ? "\\" : "") c
    }
    return "\"" out "\""
}
function is_number(s) { return s ~ /^-?[0-9]+$/ }
# key = value of an inline table, or nothing where the file says nothing.
function pair(key, value) { return value == "" ? "" : ", " key " = " (is_number(value) ? value + 0 : text(value)) }
function words(key, value) { return value == "" ? "" : ", " key " = " text(value) }
function path_of(name) { sub(/.*\//, "", name); return name }

function cpu(dir,    number, line, i, level, kind, best, cache, node, names, name, n, ranges, ends) {
    number = path_of(dir)
    sub(/^cpu/, "", number)
    line = "{cpu = " number pair("online", first(dir "/online"))
    line = line pair("package", first(dir "/topology/physical_package_id")) pair("die", first(dir "/topology/die_id"))
    line = line pair("core", first(dir "/topology/core_id")) words("siblings", first(dir "/topology/thread_siblings_list"))
    best = 0
    for (i = 0; i < 8; i++) {
        level = first(dir "/cache/index" i "/level")
        kind = first(dir "/cache/index" i "/type")
        if (level == "" || kind == "Instruction" || level + 0 <= best) continue
        best = level + 0
        cache = first(dir "/cache/index" i "/shared_cpu_list")
    }
    if (best) line = line words("llc", cache) ", llc_level = " best
    # At most 1024 nodes (kernel: CONFIG_NODES_SHIFT up to 10); they need not follow one another.
    n = split(first(root "/sys/devices/system/node/online"), ranges, ",")
    for (i = 1; i <= n; i++) {
        if (split(ranges[i], ends, "-") < 2) ends[2] = ends[1]
        for (node = ends[1] + 0; node <= ends[2] + 0 && node < 1024; node++)
            if (has(first(root "/sys/devices/system/node/node" node "/cpulist"), number)) line = line ", node = " node
    }
    line = line pair("capacity", first(dir "/cpu_capacity")) words("governor", first(dir "/cpufreq/scaling_governor"))
    line = line pair("max_khz", first(dir "/cpufreq/cpuinfo_max_freq"))
    for (i = 0; i < 8; i++) {
        name = first(debug "/sched/domains/cpu" number "/domain" i "/name")
        if (name != "") names = names (names == "" ? "" : " ") name
    }
    cpus[++nr_cpus] = line words("domains", names) "}"
}
# Is a number in a list such as 0-3,8?
function has(list, number,    n, i, parts, ends) {
    n = split(list, parts, ",")
    for (i = 1; i <= n; i++) {
        if (split(parts[i], ends, "-") < 2) ends[2] = ends[1]
        if (parts[i] != "" && number + 0 >= ends[1] + 0 && number + 0 <= ends[2] + 0) return 1
    }
    return 0
}

function group(dir,    path, line, quota, parts) {
    path = substr(dir, length(groups) + 1)
    line = "{path = " text(path == "" ? "/" : path)
    if (version == 1) {
        line = line pair("shares", first(dir "/cpu.shares"))
        quota = first(dir "/cpu.cfs_quota_us")
        if (quota + 0 > 0) line = line ", quota_us = " quota
        line = line pair("period_us", first(dir "/cpu.cfs_period_us"))
        line = line pair("rt_runtime_us", first(dir "/cpu.rt_runtime_us")) pair("rt_period_us", first(dir "/cpu.rt_period_us"))
    } else {
        line = line pair("weight", first(dir "/cpu.weight"))
        if (split(first(dir "/cpu.max"), parts, " ") == 2) {
            if (parts[1] != "max") line = line ", quota_us = " parts[1]
            line = line ", period_us = " parts[2]
        }
        line = line words("cpus", first(dir "/cpuset.cpus.effective"))
    }
    cgroups[++nr_groups] = line pair("idle", first(dir "/cpu.idle")) "}"
}

function task(dir,    file, line, more, open, shut, comm, n, f, value, tid, pid, out, cgroup, policy, flags, parts, seen) {
    file = dir "/stat"
    line = ""
    # A name may hold a line end.
    while ((getline more < file) > 0) line = line (line == "" ? "" : "?") more
    close(file)
    open = index(line, "(")
    shut = match(line, /\) [A-Za-z] /)
    if (!open || !shut) return
    comm = substr(line, open + 1)
    shut = 0
    while (match(substr(comm, shut + 1), /\) [A-Za-z] -?[0-9]+ /)) { shut += RSTART }
    if (!shut) return
    n = split(substr(comm, shut + 2), f, " ")
    comm = substr(comm, 1, shut - 1)
    tid = path_of(dir)
    pid = dir
    sub(/\/task\/[0-9]*$/, "", pid)
    pid = path_of(pid)
    # Fields of proc(5) from 3 on: 9 flags, 19 nice, 40 rt_priority, 41 policy.
    policy = f[39] in policies ? policies[f[39]] : f[39]
    flags = f[7]
    out = "{tid = " tid ", pid = " pid words("comm", comm) words("policy", policy) pair("nice", f[17])
    if (f[38] + 0 > 0) out = out ", rt_priority = " f[38]
    if (int(flags / 2097152) % 2) out = out ", kernel = true"
    file = dir "/status"
    while ((getline line < file) > 0) if (sub(/^Cpus_allowed_list:[ \t]*/, "", line)) { out = out words("cpus", line); break }
    close(file)
    file = dir "/cgroup"
    cgroup = ""
    while ((getline line < file) > 0) {
        if (version == 2 && sub(/^0::/, "", line)) cgroup = line
        else if (version == 1 && line ~ /^[0-9]+:([^:]*,)?cpu(,[^:]*)?:/) { sub(/^[0-9]+:[^:]*:/, "", line); cgroup = line }
    }
    close(file)
    out = out words("cgroup", cgroup)
    file = dir "/sched"
    while ((getline line < file) > 0) if (line ~ /^se\.slice /) { split(line, parts, ":"); out = out pair("slice_ns", trim(parts[2])) }
    close(file)
    if (!((pid) in autogroups)) autogroups[pid] = autogroup ? first(root "/proc/" pid "/autogroup") : ""
    if (split(autogroups[pid], parts, " ") == 3) out = out words("autogroup", parts[1]) pair("autogroup_nice", parts[3])
    tasks[++nr_tasks] = out "}"
}
function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }

function tunable(file,    name, value) {
    name = path_of(file)
    value = first(file)
    if (value == "") return
    if (name == "features" || name == "sched_features") features = value
    else if (name == "preempt") preempt = value
    else if (is_number(value) || name == "tunable_scaling") {
        if (name in known) return
        known[name] = 1
        tunables[++nr_tunables] = name " = " (is_number(value) ? value : text(value))
    }
}

function part(name, list, n,    i) {
    print "\n" name " = ["
    for (i = 1; i <= n; i++) print "  " list[i] ","
    print "]"
}

BEGIN {
    policies["0"] = "other"; policies["1"] = "fifo"; policies["2"] = "rr"; policies["3"] = "batch"
    policies["5"] = "idle"; policies["6"] = "deadline"; policies["7"] = "ext"
    autogroup = first(root "/proc/sys/kernel/sched_autogroup_enabled") == "1"
}
{ what = $1; $0 = substr($0, length($1) + 2) }
what == "cpu" { cpu($0) }
what == "group" { group($0) }
what == "task" { task($0) }
what == "tunable" { tunable($0) }
END {
    print "# The machine beside a trace, written by machine.sh of tracekit. One line a thing; times and sizes carry their unit."
    print "schema = 1"
    print "written = " written
    print "\n[kernel]\nos = \"linux\"\nrelease = " text(release)
    print "version = " text(first(root "/proc/sys/kernel/version")) "\narch = " text(machine)
    if (hz != "") print "hz = " hz "\nhz_from = " text(hz_from)
    if (match(preempt, /\([a-z]+\)/)) print "preempt = " text(substr(preempt, RSTART + 1, RLENGTH - 2))
    n = split(first(root "/proc/uptime"), up, " ")
    if (n) print "uptime_s = " up[1]
    print "boot_id = " text(first(root "/proc/sys/kernel/random/boot_id"))
    n = split(first(root "/proc/cmdline"), arguments, " ")
    line = ""
    matter = "^(isolcpus|nohz|rcu_nocbs|idle|preempt|threadirqs|skew_tick|noautogroup|nosmt|mitigations|highres"
    matter = matter "|cpuidle|intel_idle|processor|sched_)"
    for (i = 1; i <= n; i++)
        if (arguments[i] ~ matter)
            line = line (line == "" ? "" : " ") arguments[i]
    print "arguments = " text(line)
    n = split(settings, lines, "\n")
    line = ""
    for (i = 1; i <= n; i++) line = line (i > 1 ? " " : "") lines[i]
    print "configuration = " text(line)

    print "\n[scheduler]"
    if (features != "") print "features = " text(features)
    unread = ""
    if (hz == "") unread = unread ", " text("hz: no kernel configuration and no readable /proc/timer_list")
    debug = substr(debug, length(root) + 1)
    if (features == "") unread = unread ", " text("features, tunables in debugfs: cannot read " debug \
        "/sched (needs root, and mount -t debugfs none /sys/kernel/debug)")
    if (groups == root) unread = unread ", " text("cgroups: no cgroup file system is mounted")
    print "unread = [" substr(unread, 3) "]"
    print "\n[scheduler.tunables]"
    for (i = 1; i <= nr_tunables; i++) print tunables[i]
    print "\n[machine]"
    print "cgroup_version = " version
    part("cpus", cpus, nr_cpus)
    part("cgroups", cgroups, nr_groups)
    part("tasks", tasks, nr_tasks)
}' > "$part"
mv "$part" "$out"
echo "wrote $out" >&2
