//! A directory of another environment as an environment of its own: the destination of a backup on
//! the disk that the simulator crashes.

use crate::delegate_env;
use crate::{ABOVE_ROOT, Env, File, OpenMode};
use evenkeel_base::Result;
use std::sync::Arc;

/// The files below one directory.
pub struct SubEnv {
    inner: Arc<dyn Env>,
    dir: String,
}

impl SubEnv {
    /// The files of `inner` below `dir`.
    pub fn new(inner: Arc<dyn Env>, dir: &str) -> SubEnv {
        SubEnv { inner, dir: dir.to_string() }
    }

    fn path(&self, path: &str) -> String {
        match path {
            "" => self.dir.clone(),
            path => format!("{}/{path}", self.dir),
        }
    }
}

impl Env for SubEnv {
    delegate_env!(inner: now_ns, random, wait, spawn);

    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.inner.open(&self.path(path), mode)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.inner.list(&self.path(dir))
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.inner.remove(&self.path(path))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(&self.path(from), &self.path(to))
    }

    fn create_dir(&self, dir: &str) -> Result<()> {
        self.inner.create_dir(&self.path(dir))
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        if dir != ABOVE_ROOT {
            return self.inner.sync_dir(&self.path(dir));
        }
        let above = self.dir.match_indices('/').map(|(at, _)| &self.dir[..at]);
        above.rev().chain([""]).try_for_each(|dir| self.inner.sync_dir(dir))?;
        self.inner.sync_dir(ABOVE_ROOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{CrashPolicy, SimOptions};
    use crate::{MemEnv, SimDisk, SimEnv};

    /// The names of its own directory, and of those above, are lost in a crash until they are
    /// synced.
    #[test]
    fn the_name_of_its_root_is_durable_when_it_is_synced() {
        for is_synced in [false, true] {
            let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
            let sub = SubEnv::new(sim.env(), "a/b");
            sub.create_dir("").expect("makes");
            sub.open("x", OpenMode::READ_WRITE).and_then(|file| file.sync()).expect("writes");
            sub.sync_dir("").expect("syncs");
            if is_synced {
                sub.sync_dir(ABOVE_ROOT).expect("syncs");
            }
            let left = sim.disk().crash(CrashPolicy::LoseAll, 1).paths();
            assert_eq!(left == ["a/b/x"], is_synced, "{left:?}");
        }
    }

    #[test]
    fn its_files_are_those_below_the_directory() {
        let all: Arc<dyn Env> = Arc::new(MemEnv::new());
        let sub = SubEnv::new(all.clone(), "a/b");
        sub.create_dir("c").expect("makes");
        let file = sub.open("c/x", OpenMode::READ_WRITE).expect("opens");
        file.write_at(b"1", 0).expect("writes");
        sub.rename("c/x", "c/y").expect("renames");
        sub.sync_dir("c").expect("syncs");
        assert_eq!(all.list("a/b/c").expect("lists"), ["y"]);
        assert_eq!(
            (sub.list("c").expect("lists"), sub.list("").expect("lists")),
            (vec!["y".to_string()], vec!["c".to_string()])
        );
        sub.remove("c/y").expect("removes");
        assert!(all.list("a/b/c").expect("lists").is_empty());
    }
}
