//! Replays as recorded that judge what was inferred: it is taken where the recorded run is replayed
//! no worse.

mod messages;
mod places;

use crate::reconstruct::{Placement, Reading, Recon};
use crate::replay::ReplaySpec;

/// Events of a replay that are there at a time.
const STRETCH: usize = 1 << 16;

/// The programs of a trace that has been read. What was inferred about unobserved messages is kept where
/// `identity`, a replay as the trace was recorded, is no worse for it; with [`Placement::Auto`] tasks
/// are left to the policy's placement where that is the recorded machine's.
pub fn programs(mut reading: Reading, identity: &ReplaySpec) -> Recon {
    let (placement, cancel) = reading.asked();
    let auto = placement == Placement::Auto;
    let beside = if auto { places::choose(&mut reading, identity, &cancel) } else { None };
    Recon { beside, ..messages::kept(&mut reading, identity, &cancel) }
}
