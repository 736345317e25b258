//! Runs on disk: their files, the writer of one, blocks and metadata in memory, damaged files.

pub(crate) mod cache;
pub(crate) mod damage;
pub(crate) mod file;
pub(crate) mod filter_cache;
pub(crate) mod lazy_metadata;
pub(crate) mod writer;
