//! The machine: what its caller says of it ([`Machine`]), its state, and what policies may ask of
//! it ([`Kernel`]).

mod cpu;
mod idle;
mod kernel;
mod spec;

pub(crate) use cpu::CpuState;
pub(crate) use idle::IdleCpus;
pub(crate) use kernel::steps_of;
pub use kernel::Kernel;
pub use spec::{Machine, TimerMode};
