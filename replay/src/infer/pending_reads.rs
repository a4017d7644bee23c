//! Messages that were read before anybody can be seen to have written them: who wrote them after all.

use std::collections::BTreeMap;

use super::budget::LOOKS;
use super::log::Said;
use super::segments::Begin;
use super::walk::{Item, PendingRead, Walk};
use super::{Mark, Message};
use crate::task::Ns;

/// Log-likelihood of a message that nobody wrote or nobody read in the end.
const NEVER: f64 = -6.0;

impl Walk<'_> {
    /// A reader found `queue` empty: what seems to wait there was what somebody read before it
    /// could be seen to be written.
    pub(super) fn reconcile(&mut self, queue: usize, at: Ns) {
        while self.queues[queue].front().is_some_and(|q| q.at < at) {
            if !self.known.budget.spend(1 + self.forgotten.len() / LOOKS) {
                return;
            }
            let Some(i) = self.forgotten.iter().position(|f| f.0 == queue) else { return };
            let (_, pending) = self.forgotten.remove(i);
            if let Some(item) = self.queues[queue].pop_front() {
                self.match_read(pending, item.token, item.message);
            }
        }
    }

    pub(super) fn deliver(&mut self, queue: usize, item: Item) {
        match self.pending_reads[queue].pop_front() {
            Some(pending) => self.match_read(pending, item.token, item.message),
            None => self.queues[queue].push_back(item),
        }
    }

    pub(super) fn match_read(&mut self, pending: PendingRead, token: usize, message: u32) {
        self.log.push(Said::Taken(message));
        self.log.push(Said::Matched(pending.task, pending.mark, message));
        let request = self.tokens[token].request;
        if request != pending.request {
            self.log.push(Said::Same(pending.request, request, self.tokens[token].past.clone()));
        }
        if self.hold[self.slot(pending.task)].is_some_and(|h| h.token == pending.token) {
            self.tokens[pending.token] = self.tokens[token].clone();
            let s = self.station(pending.task);
            self.tokens[pending.token].visit(s);
        }
    }

    /// Ends and numbers of the segments in which each source begins by itself, in the order of time.
    fn fresh(&self) -> BTreeMap<usize, Vec<(Ns, usize)>> {
        let mut fresh: BTreeMap<usize, Vec<(Ns, usize)>> = BTreeMap::new();
        for (i, g) in self.known.segments.iter().enumerate().filter(|(_, g)| g.begin == Begin::Fresh) {
            fresh.entry(self.station(g.task)).or_default().push((g.to, i));
        }
        fresh.values_mut().for_each(|own| own.sort_unstable());
        fresh
    }

    /// Reads without a write: a source may have sent two messages at once. Counts what stays
    /// unexplained.
    pub(super) fn settle(&mut self) {
        for queue in 0..self.pending_reads.len() {
            let open: Vec<PendingRead> = self.pending_reads[queue].drain(..).collect();
            self.forgotten.extend(open.into_iter().map(|d| (queue, d)));
            self.reconcile(queue, Ns::MAX);
        }
        let fresh = self.fresh();
        for (queue, pending) in std::mem::take(&mut self.forgotten) {
            let looked = self.known.budget.spend(1 + self.known.segments.len() / LOOKS);
            let senders = fresh.iter().filter(|f| looked && self.known.net.stations[*f.0].targets.contains_key(&queue));
            let last = senders.filter_map(|(_, own)| own[..own.partition_point(|g| g.0 <= pending.at)].last());
            let Some(g) = last.max().map(|(_, i)| self.known.segments[*i]) else {
                self.unmatched += 1;
                continue;
            };
            let request = Some(pending.request);
            let message = self.message(Message { station: Some(queue), taken: true, request, ..Message::default() });
            self.unobserved += 1;
            self.mark(g.task, g.to, Mark::Send(message));
            self.log.push(Said::Matched(pending.task, pending.mark, message));
        }
        // What was sent after the last reader fell asleep was still on its way when the trace ended.
        for (queue, items) in self.queues.iter().enumerate() {
            let until = self.slept.get(queue).copied().unwrap_or(Ns::MAX);
            self.left += items.iter().filter(|q| q.at < until).count();
        }
        self.score += NEVER * (self.unmatched + self.left) as f64;
    }
}
