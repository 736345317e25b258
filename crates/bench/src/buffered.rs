//! Files of the operating system through its page cache only: `--direct-io false`.

use evenkeel_base::Result;
use evenkeel_io::{Env, File, OpenMode, RealEnv};
use std::path::Path;
use std::sync::Arc;

/// The real environment without direct I/O.
pub struct Buffered(RealEnv);

impl Buffered {
    /// The environment of the files below `root`.
    pub fn new(root: &Path) -> Buffered {
        Buffered(RealEnv::new(root))
    }
}

impl Env for Buffered {
    evenkeel_io::delegate_env! {
        0: list, remove, rename, create_dir, sync_dir, now_ns, random, wait, spawn
    }
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.0.open(path, OpenMode { direct: false, ..mode })
    }
}
