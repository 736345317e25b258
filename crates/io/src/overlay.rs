//! An environment over another one that is only read: writes stay in memory and vanish when it is
//! dropped. So a database can be opened, recovered and checked without changing a byte of its
//! directory (`evenkeel check`, read-only open).
//!
//! Memory: the written blocks, about as many as recovery changes.

use crate::{Env, File, OpenMode};
use evenkeel_base::sync::{Mutex, RwLock};
use evenkeel_base::{Code, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const BLOCK: u64 = 4096;

/// Reads through to a base environment, writes to memory.
pub struct OverlayEnv {
    base: Arc<dyn Env>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Arc<Layered>>,
    /// Names of the base that were removed or renamed away.
    gone: BTreeSet<String>,
}

struct Layered {
    /// The path at its opening, for messages.
    path: String,
    base: Option<Arc<dyn File>>,
    over: RwLock<Over>,
}

struct Over {
    len: u64,
    /// Bytes of the base that are still visible; never grows.
    base_len: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl OverlayEnv {
    /// An overlay of `base`.
    pub fn new(base: Arc<dyn Env>) -> OverlayEnv {
        OverlayEnv { base, state: Mutex::default() }
    }

    /// Bytes of memory that written blocks take.
    pub fn used_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.files.values().map(|f| f.over.read().blocks.len() as u64 * BLOCK).sum()
    }

    fn layered(&self, state: &mut State, path: &str) -> Result<Option<Arc<Layered>>> {
        if let Some(file) = state.files.get(path) {
            return Ok(Some(file.clone()));
        }
        if state.gone.contains(path) {
            return Ok(None);
        }
        let base = match self.base.open(path, OpenMode::READ) {
            Ok(base) => base,
            Err(error) if error.code() == Code::FileMissing => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = base.len()?;
        let over = RwLock::new(Over { len, base_len: len, blocks: BTreeMap::new() });
        let file = Arc::new(Layered { path: path.to_string(), base: Some(base), over });
        state.files.insert(path.to_string(), file.clone());
        Ok(Some(file))
    }
}

impl Layered {
    fn read_below(&self, over: &Over, buf: &mut [u8], offset: u64) -> Result<()> {
        buf.fill(0);
        let visible = over.base_len.saturating_sub(offset).min(buf.len() as u64) as usize;
        if visible > 0
            && let Some(base) = &self.base
        {
            base.read_at(&mut buf[..visible], offset)?;
        }
        Ok(())
    }

    fn change(&self, offset: u64, len: u64, byte: impl Fn(u64) -> u8) -> Result<()> {
        let mut over = self.over.write();
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let block = at / BLOCK;
            let stop = ((block + 1) * BLOCK).min(end);
            if !over.blocks.contains_key(&block) {
                let mut content = vec![0; BLOCK as usize].into_boxed_slice();
                self.read_below(&over, &mut content, block * BLOCK)?;
                over.blocks.insert(block, content);
            }
            if let Some(content) = over.blocks.get_mut(&block) {
                for position in at..stop {
                    content[(position % BLOCK) as usize] = byte(position - offset);
                }
            }
            at = stop;
        }
        over.len = over.len.max(end);
        Ok(())
    }
}

impl File for Layered {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let over = self.over.read();
        let end = offset + buf.len() as u64;
        if end > over.len {
            let error = Error::new(Code::ReadShort).with("file", &self.path);
            return Err(error.with("offset", offset).with("len", buf.len()));
        }
        self.read_below(&over, buf, offset)?;
        for (block, content) in over.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let start = (block * BLOCK).max(offset);
            let stop = ((block + 1) * BLOCK).min(end);
            let from = (start % BLOCK) as usize;
            let part = &content[from..from + (stop - start) as usize];
            buf[(start - offset) as usize..(stop - offset) as usize].copy_from_slice(part);
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.change(offset, buf.len() as u64, |i| buf[i as usize])
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.over.read().len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let tail = len % BLOCK;
        if len < self.len()? && tail != 0 {
            self.change(len, BLOCK - tail, |_| 0)?;
        }
        let mut over = self.over.write();
        over.base_len = over.base_len.min(len);
        over.blocks.split_off(&len.div_ceil(BLOCK));
        over.len = len;
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let mut over = self.over.write();
        over.len = over.len.max(offset + len);
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let end = (offset + len).min(self.len()?);
        if offset < end { self.change(offset, end - offset, |_| 0) } else { Ok(()) }
    }
}

impl Env for OverlayEnv {
    crate::delegate_env!(base: now_ns, random, wait, spawn);
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        let found = self.layered(&mut state, path)?;
        if found.is_some() && mode.create && mode.exclusive {
            let error = Error::new(Code::FileOpen).with("file", path);
            return Err(error.with("os", "file exists"));
        }
        match found {
            Some(file) => Ok(file),
            None if mode.create => {
                let over = RwLock::new(Over { len: 0, base_len: 0, blocks: BTreeMap::new() });
                let file = Arc::new(Layered { path: path.to_string(), base: None, over });
                state.files.insert(path.to_string(), file.clone());
                Ok(file)
            }
            None => Err(Error::new(Code::FileMissing).with("file", path)),
        }
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let below = self.base.list(dir)?;
        let state = self.state.lock();
        let mut names: BTreeSet<String> =
            below.into_iter().filter(|n| !state.gone.contains(&format!("{prefix}{n}"))).collect();
        for path in state.files.keys() {
            if let Some(name) = path.strip_prefix(&prefix)
                && !name.contains('/')
            {
                names.insert(name.to_string());
            }
        }
        Ok(names.into_iter().collect())
    }

    fn remove(&self, path: &str) -> Result<()> {
        let mut state = self.state.lock();
        state.files.remove(path);
        state.gone.insert(path.to_string());
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut state = self.state.lock();
        let Some(file) = self.layered(&mut state, from)? else {
            return Err(Error::new(Code::FileMissing).with("file", from));
        };
        state.files.remove(from);
        state.gone.insert(from.to_string());
        state.files.insert(to.to_string(), file);
        Ok(())
    }

    fn create_dir(&self, _dir: &str) -> Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemEnv;

    #[test]
    fn writes_show_in_the_overlay_and_not_in_its_base() {
        let base: Arc<dyn Env> = Arc::new(MemEnv::new());
        let below = base.open("d/a", OpenMode::READ_WRITE).expect("open");
        below.write_at(&[7; 10_000], 0).expect("write");
        let env = OverlayEnv::new(base.clone());
        let above = env.open("d/a", OpenMode::READ_WRITE).expect("open");
        above.write_at(&[9; 3], 4095).expect("write");
        let mut bytes = [0; 6];
        above.read_at(&mut bytes, 4093).expect("read");
        assert_eq!(bytes, [7, 7, 9, 9, 9, 7]);
        below.read_at(&mut bytes, 4093).expect("read");
        assert_eq!(bytes, [7; 6]);
        above.set_len(5000).expect("cut");
        above.set_len(9000).expect("grow");
        above.read_at(&mut bytes, 4997).expect("read");
        assert_eq!(bytes, [7, 7, 7, 0, 0, 0]);
        env.rename("d/a", "d/b").expect("rename");
        env.open("d/c", OpenMode::READ_WRITE).expect("open");
        assert_eq!(env.list("d").expect("list"), ["b", "c"]);
        assert_eq!(base.list("d").expect("list"), ["a"]);
        env.remove("d/b").expect("remove");
        assert!(env.open("d/b", OpenMode::READ).is_err());
        assert_eq!(below.len().expect("len"), 10_000);
    }
}
