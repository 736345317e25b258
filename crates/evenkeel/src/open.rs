//! Opening a directory: the superblock, and recovery of what a crash left behind.

pub(crate) mod recovery;
pub(crate) mod redo_pass;
pub(crate) mod superfile;
