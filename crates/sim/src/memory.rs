//! Limits the memory that seeds take. A seed that takes too much ends the process with a message
//! that names it. Otherwise the system kills the process, and the seed stays unknown.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Limit of the memory of all seeds that run at the same time: several times what they normally
/// take.
const RESIDENT_MAX: u64 = 2 << 30;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The running seeds, each with the greatest memory of the process since the seed began.
#[derive(Default)]
pub struct Memory {
    running: Mutex<BTreeMap<u64, u64>>,
}

impl Memory {
    /// A seed begins.
    pub fn begin(&self, seed: u64) {
        self.lock().insert(seed, 0);
        let _ = self.look();
    }

    /// A seed ends. Returns the greatest memory of the process while it ran, which includes that of
    /// other seeds.
    pub fn end(&self, seed: u64) -> u64 {
        let _ = self.look();
        self.lock().remove(&seed).unwrap_or_default()
    }

    /// Samples the memory until the other end of `done` is dropped.
    pub fn watch(&self, done: &mpsc::Receiver<()>) {
        while done.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            if let Err(why) = self.look() {
                // A panic of this thread would leave the seeds' threads running.
                let _ = writeln!(std::io::stderr(), "{why}");
                std::process::exit(101);
            }
        }
    }

    fn look(&self) -> Result<(), String> {
        let Some(now) = resident() else { return Ok(()) };
        let mut running = self.lock();
        running.values_mut().for_each(|most| *most = now.max(*most));
        let seeds: Vec<u64> = running.keys().copied().collect();
        judge(now, &seeds)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, u64>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn judge(bytes: u64, seeds: &[u64]) -> Result<(), String> {
    match bytes > RESIDENT_MAX {
        true => Err(format!("{} MiB of memory in seeds {seeds:?}", bytes >> 20)),
        false => Ok(()),
    }
}

/// Resident bytes of this process, if the system reports them.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_takes_too_much_is_named() {
        let why = judge(RESIDENT_MAX + (1 << 20), &[7, 9]).expect_err("too much");
        assert_eq!(why, "2049 MiB of memory in seeds [7, 9]");
        assert_eq!(judge(RESIDENT_MAX, &[7]), Ok(()));
    }

    #[test]
    fn what_is_taken_while_a_seed_runs_is_counted() {
        let memory = Memory::default();
        memory.begin(1);
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        memory.begin(2);
        drop(bytes);
        assert!(memory.end(1) >= 64 << 20, "the whole of what it had");
    }
}
