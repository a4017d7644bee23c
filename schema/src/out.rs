//! What a parser or a replay fills: records, names, diagnostics, facts about the whole.

use crate::diag::{Diagnostic, Diagnostics};
use crate::table::Table;
use crate::tables::{Histograms, Losses, Slices, Summaries};
use crate::{Events, Metadata, Strings};

/// The receiving end of a parser or a replay.
///
/// `events` may be drained by the caller between two calls ([`Out::clear_events`]); everything else
/// accumulates. Sources that hold intervals instead of records (`perf sched timehist`) fill
/// `slices` directly and leave `events` empty.
#[derive(Debug, Default)]
pub struct Out {
    /// Records, in time order.
    pub events: Events,
    /// The strings of all tables here.
    pub strings: Strings,
    /// What went wrong or was inferred.
    pub diagnostics: Diagnostics,
    /// Facts about the whole.
    pub meta: Metadata,
    /// Intervals with lost records.
    pub losses: Losses,
    /// Slices that the source itself states.
    pub slices: Slices,
    /// Histograms that the source itself states.
    pub histograms: Histograms,
    /// Figures that the source itself states.
    pub summaries: Summaries,
}

impl Out {
    /// An empty receiver.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the events, which the caller has taken, and their texts.
    pub fn clear_events(&mut self) {
        self.events.clear();
        self.strings.forget_texts();
    }

    /// Adds a diagnostic.
    pub fn diag(&mut self, d: Diagnostic) {
        self.diagnostics.push(d);
    }
}
