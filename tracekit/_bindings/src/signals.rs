//! Long work without the GIL that stays open to signals and says how far it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tracekit_replay::cancel::Cancel;

use crate::errors::{caught, internal_error, Bug};

/// Time between two looks for signals. A user notices a tenth of a second.
const LOOK: Duration = Duration::from_millis(50);

/// Stack of the thread that works: as large as a main thread's usually is.
const STACK: usize = 8 << 20;

/// Which share of some work is done, as the thread that does it says.
#[derive(Default)]
pub struct Share<'a> {
    done: AtomicU64,
    tell: Option<&'a (dyn Fn(f64) + Sync)>,
}

impl Share<'_> {
    /// So much is done, from 0 to 1.
    pub fn is(&self, done: f64) {
        self.done.store(done.to_bits(), Ordering::Relaxed);
        if let Some(tell) = self.tell {
            tell(done);
        }
    }

    fn done(&self) -> f64 {
        f64::from_bits(self.done.load(Ordering::Relaxed))
    }
}

/// Runs `work` without the GIL, open to signals. The first exception that a signal's handler raises
/// sets the flag and is raised once `work` has returned. A panic in it does not tear down the
/// interpreter.
pub fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce(&Cancel) -> T + Send) -> PyResult<T> {
    reporting(py, None, |cancel, _| work(cancel))
}

/// As [`interruptible`]; `progress` is called with the share that is done from time to time, and at
/// the end. What it raises counts as what a signal's handler raises.
pub fn reporting<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&Cancel, &Share<'_>) -> T + Send,
) -> PyResult<T> {
    let tell = |py: Python<'_>, done: f64| progress.map_or(Ok(()), |tell| tell.call1(py, (done,)).map(drop));
    let done = if signals_come(py)? { aside(py, &tell, work) } else { in_place(py, &tell, work) }?;
    tell(py, 1.0).map(|()| done)
}

/// Whether this thread is the one that runs handlers of signals, and there are some. A worker of a
/// sweep has none: it leaves Ctrl-C to the process that ends it.
fn signals_come(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    if !threading.call_method0("main_thread")?.is(&threading.call_method0("current_thread")?) {
        return Ok(false);
    }
    let signal = py.import("signal")?;
    for number in signal.call_method0("valid_signals")?.try_iter()? {
        if signal.call_method1("getsignal", (number?,))?.is_callable() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs `work` on a thread of its own, while this one looks for signals and tells of progress.
fn aside<T: Send>(
    py: Python<'_>,
    tell: &dyn Fn(Python<'_>, f64) -> PyResult<()>,
    work: impl FnOnce(&Cancel, &Share<'_>) -> T + Send,
) -> PyResult<T> {
    let (cancel, share) = (&Cancel::new(), &Share::default());
    std::thread::scope(|scope| {
        let (sender, mut receiver) = channel();
        let body = move || {
            let done = caught(|| work(cancel, share));
            // Nobody listens any more only after a panic here.
            let _ = sender.send(done);
        };
        std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body)?;
        let mut raised = None;
        loop {
            let waiting = &mut receiver;
            let done = py.detach(move || waiting.recv_timeout(LOOK));
            match done {
                Ok(done) => {
                    return raised.map_or_else(|| done.map_err(|bug| internal_error(py, &bug)), Err);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(internal_error(py, &Bug::new("a thread was lost"))),
                Err(RecvTimeoutError::Timeout) if raised.is_none() => {
                    if let Err(error) = py.check_signals().and_then(|()| tell(py, share.done())) {
                        cancel.set();
                        raised = Some(error);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    })
}

/// Runs `work` on this thread, to which no signal comes: a thread for each short replay of a sweep
/// costs more than its start, since it wakes on a CPU that another worker has.
fn in_place<T: Send>(
    py: Python<'_>,
    tell: &(dyn Fn(Python<'_>, f64) -> PyResult<()> + Sync),
    work: impl FnOnce(&Cancel, &Share<'_>) -> T + Send,
) -> PyResult<T> {
    let cancel = &Cancel::new();
    let last: Mutex<(Instant, Option<PyErr>)> = Mutex::new((now(), None));
    let say = |done: f64| {
        let Ok(mut last) = last.lock() else { return };
        if last.1.is_some() || last.0.elapsed() < LOOK {
            return;
        }
        last.1 = Python::attach(|py| tell(py, done)).err();
        last.0 = now();
        if last.1.is_some() {
            cancel.set();
        }
    };
    let share = &Share { done: AtomicU64::default(), tell: Some(&say) };
    let done = py.detach(|| caught(|| work(cancel, share)));
    match last.into_inner() {
        Ok((_, Some(error))) => Err(error),
        _ => done.map_err(|bug| internal_error(py, &bug)),
    }
}

#[allow(clippy::disallowed_methods, reason = "when progress is reported is no result")]
fn now() -> Instant {
    Instant::now()
}
