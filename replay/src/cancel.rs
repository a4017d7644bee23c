//! How a caller stops long work from outside.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A flag that long loops look at. Work that finds it set returns early with an outcome that means
/// nothing: whoever set it throws that away. Clones share the flag; the default is never set.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Option<Arc<AtomicBool>>);

impl Cancel {
    /// A flag that can be set.
    pub fn new() -> Self {
        Cancel(Some(Arc::new(AtomicBool::new(false))))
    }

    /// Asks the work to stop.
    pub fn set(&self) {
        if let Some(flag) = &self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// True when the work is to stop.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// It is no part of what is asked for.
impl PartialEq for Cancel {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
