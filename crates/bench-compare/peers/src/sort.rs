//! An external sort of index keys within a byte budget: sorted chunks go to temporary files and are
//! merged.

use crate::keys::{KEY_MAX, Key};
use evenkeel_bench::BenchError;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Collects keys in any order and yields them sorted.
pub struct Sorter {
    keys: Vec<Key>,
    keys_max: usize,
    chunks: Vec<PathBuf>,
    dir: PathBuf,
    name: String,
    /// Bytes written to temporary files.
    pub spilled_bytes: u64,
}

impl Sorter {
    /// A sorter that keeps at most `budget` bytes in memory.
    pub fn new(dir: &Path, name: &str, budget: usize) -> Sorter {
        let keys_max = (budget / KEY_MAX).max(1);
        let (dir, name) = (dir.to_path_buf(), name.to_string());
        Sorter { keys: Vec::new(), keys_max, chunks: Vec::new(), dir, name, spilled_bytes: 0 }
    }

    /// Adds a key.
    pub fn add(&mut self, key: Key) -> Result<(), BenchError> {
        if self.keys.len() == self.keys_max {
            self.spill()?;
        }
        if self.keys.capacity() == 0 {
            self.keys.reserve_exact(self.keys_max);
        }
        self.keys.push(key);
        Ok(())
    }

    fn spill(&mut self) -> Result<(), BenchError> {
        self.keys.sort_unstable();
        let path = self.dir.join(format!("{}.{}.sort", self.name, self.chunks.len()));
        let failed = |e| BenchError::file(&path, e);
        let mut file = BufWriter::with_capacity(1 << 18, File::create(&path).map_err(failed)?);
        for key in self.keys.drain(..) {
            file.write_all(&key).map_err(failed)?;
            self.spilled_bytes += KEY_MAX as u64;
        }
        file.flush().map_err(failed)?;
        self.chunks.push(path);
        Ok(())
    }

    /// Gives every key in order.
    pub fn finish(
        mut self,
        mut each: impl FnMut(&Key) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        if self.chunks.is_empty() {
            self.keys.sort_unstable();
            return self.keys.iter().try_for_each(each);
        }
        self.spill()?;
        self.keys = Vec::new();
        let mut files = Vec::new();
        for path in &self.chunks {
            let file = File::open(path).map_err(|e| BenchError::file(path, e))?;
            files.push(BufReader::with_capacity(1 << 18, file));
        }
        let mut heap = BinaryHeap::new();
        let mut key = [0; KEY_MAX];
        for (i, file) in files.iter_mut().enumerate() {
            if file.read_exact(&mut key).is_ok() {
                heap.push(Reverse((key, i)));
            }
        }
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((least, i)) = *top;
            each(&least)?;
            if files[i].read_exact(&mut key).is_ok() {
                *top = Reverse((key, i));
            } else {
                std::collections::binary_heap::PeekMut::pop(top);
            }
        }
        for path in &self.chunks {
            std::fs::remove_file(path).map_err(|e| BenchError::file(path, e))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_within_and_beyond_its_budget() {
        for budget in [1 << 20, 100 * KEY_MAX] {
            let mut sorter =
                Sorter::new(&std::env::temp_dir(), &format!("sort-test-{budget}"), budget);
            for n in 0..1000u64 {
                let mut key = [0; KEY_MAX];
                key[..8].copy_from_slice(&(n * 7919 % 1000).to_be_bytes());
                sorter.add(key).expect("space for it");
            }
            let mut seen = Vec::new();
            sorter
                .finish(|key| {
                    seen.push(*key);
                    Ok(())
                })
                .expect("readable");
            assert!(seen.len() == 1000 && seen.is_sorted());
        }
    }
}
