//! What the trust rungs share: the work that the killed process does and its parent foretells, and
//! the bodies of the fuzz targets as plain functions. Test code: no other crate uses it.
#![forbid(unsafe_code)]

pub mod drive;
pub mod faulty;
pub mod fuzz;
pub mod hostile;
pub mod mutate;
pub mod panics;
pub mod restart;
pub mod stores;
pub mod wide;
pub mod work;
