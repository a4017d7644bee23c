//! Tasks that are bound to a CPU, as far as the trace shows it: the kernel's own threads of a CPU.

use crate::history::TaskHistory;

/// Kernel threads of which Linux makes one for each CPU and which may run on no other, by the name
/// before `/NUMBER`. Source: the users of `smpboot_register_percpu_thread` and
/// `kthread_create_on_cpu` in Linux 6.12. Workers of a CPU's own pool are `kworker/NUMBER:ID`;
/// those of no CPU are `kworker/uPOOL:ID`.
const PER_CPU: [&str; 8] =
    ["backlog_napi", "cpuhp", "idle_inject", "irq_work", "ksoftirqd", "ktimers", "migration", "rcuc"];

/// Number of the CPU whose own thread has this name.
fn number_of(comm: &str) -> Option<i32> {
    let (name, rest) = comm.split_once('/')?;
    let number = match name {
        "kworker" => rest.split_once(':')?.0,
        _ if PER_CPU.contains(&name) => rest,
        _ => return None,
    };
    number.parse().ok()
}

/// Position of the CPU to which a task is bound: its name says so, and it ran there and nowhere else.
pub(super) fn cpu_of(task: &TaskHistory, comm: &str, cpus: &[i32]) -> Option<usize> {
    let number = number_of(comm)?;
    let cpu = cpus.iter().position(|n| *n == number)?;
    let mut on = task.events.iter().filter_map(|a| a.kind.cpu());
    let first = on.next()?;
    (first as usize == cpu && on.all(|other| other == first)).then_some(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_cpu_are_known_by_the_names_that_the_kernel_gives() {
        let found =
            ["ksoftirqd/3", "kworker/12:1H", "kworker/u8:2", "worker/3", "rcu_preempt", "migration/x"].map(number_of);
        assert_eq!(found, [Some(3), Some(12), None, None, None, None]);
    }
}
