//! Opening a directory: the superblock, and recovery of what a crash left behind.

pub(crate) mod checkpoint_copy;
#[cfg(test)]
mod checkpoint_copy_tests;
#[cfg(test)]
mod create_tests;
pub(crate) mod recovery;
pub(crate) mod redo_pass;
pub(crate) mod superfile;
