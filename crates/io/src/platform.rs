//! The operating system, behind one set of functions: `linux` uses its calls directly, `portable`
//! uses the standard library and serves every other system. No other module of the library calls
//! the system or names one, but `sync`, which chooses how threads sleep.
//!
//! On a system without a call the portable functions do less, never something else: no direct I/O,
//! no memory given back, no processor chosen, blocks reserved by writing, no holes.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;

#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", allow(dead_code))]
mod portable;
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::*;

#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) mod futex;

/// Error numbers of POSIX, by which errors are classified.
#[cfg(unix)]
pub mod error_numbers {
    pub use libc::{
        EACCES, EAGAIN, EDQUOT, EFBIG, EINVAL, EIO, EMFILE, ENFILE, ENOENT, ENOMEM, ENOSPC, EPERM,
        EROFS,
    };
}

/// Error numbers of POSIX, by which errors are classified; their values are those of Linux.
#[cfg(not(unix))]
pub mod error_numbers {
    #![allow(missing_docs)]
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const EAGAIN: i32 = 11;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const EINVAL: i32 = 22;
    pub const ENFILE: i32 = 23;
    pub const EMFILE: i32 = 24;
    pub const EFBIG: i32 = 27;
    pub const ENOSPC: i32 = 28;
    pub const EROFS: i32 = 30;
    pub const EDQUOT: i32 = 122;
}
