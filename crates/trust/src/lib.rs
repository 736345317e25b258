//! The shared code of the trust rungs: the work of the process that is killed, which its parent
//! predicts, and the fuzz targets as plain functions. Only tests use this crate.
#![forbid(unsafe_code)]

mod catalog_rows;
mod checkpoint_copy;
pub mod corpus;
pub mod drive;
pub mod faulty;
pub mod fuzz;
pub mod hostile;
mod linked;
mod manifest;
pub mod mutate;
pub mod panics;
pub mod restart;
pub mod stores;
pub mod wide;
pub mod work;
