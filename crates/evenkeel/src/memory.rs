//! How `memory_size` is divided: the budget at first, the law by which caches lend each other
//! memory, and the arbiter that applies the law.

pub(crate) mod automatic_size;
pub(crate) mod memory_arbiter;
pub(crate) mod memory_budget;
pub(crate) mod memory_law;
pub(crate) mod memory_size;
