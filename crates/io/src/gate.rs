//! Holds back changes of files: recovery closes the gate until it is known that the log is intact
//! (`Runtime::hold_changes`). A held thread waits, whatever it holds, because the thread that opens
//! the gate waits for no other. The wait is for a read of the device.

use crate::{Env, Event};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Usually open.
#[derive(Default)]
pub(crate) struct ChangeGate {
    /// Changes are held, or refused.
    is_closed: AtomicBool,
    refusal: Mutex<Option<Error>>,
    changed: Arc<Event>,
}

impl ChangeGate {
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Lets changes continue.
    pub fn open(&self) {
        *self.refusal.lock() = None;
        self.is_closed.store(false, Ordering::SeqCst);
        self.changed.notify();
    }

    /// Held and new changes fail with this error, until the gate is opened.
    pub fn refuse(&self, error: Error) {
        *self.refusal.lock() = Some(error);
        self.changed.notify();
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits until changes may continue.
    ///
    /// # Errors
    /// The error with which changes are refused.
    pub fn pass(&self, env: &dyn Env) -> Result<()> {
        while self.is_closed() {
            let seen = self.changed.now();
            if let Some(error) = self.refusal.lock().clone() {
                return Err(error);
            }
            if self.is_closed() {
                env.wait(&self.changed, seen, None, Cause::DeviceSlow);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::sim::{SimDisk, SimEnv, SimOptions};
    use crate::{OpenMode, Runtime};
    use evenkeel_base::sync::Mutex;
    use evenkeel_base::{Code, Error, Result};
    use std::sync::Arc;

    fn change(rt: &Runtime, how: usize) -> Result<()> {
        let file = rt.env.open("old", OpenMode::READ_WRITE)?;
        match how {
            0 => file.write_at(b"new", 0),
            1 => file.set_len(1),
            2 => file.allocate(0, 8192),
            3 => file.punch(0, 3),
            4 => rt.env.remove("old"),
            5 => rt.env.rename("old", "older"),
            6 => rt.env.create_dir("dir"),
            _ => rt.env.open("made", OpenMode::READ_WRITE).map(drop),
        }
    }
    const CHANGES: usize = 8;

    /// A change of a file waits, and is then done or refused; reads, syncs and the open of an
    /// existing file continue.
    #[test]
    fn held_changes_wait_until_they_are_allowed_or_refused() -> Result<()> {
        for how in 0..CHANGES {
            for refused in [false, true] {
                let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
                let rt = Runtime::new(sim.env());
                let file = rt.env.open("old", OpenMode::READ_WRITE)?;
                file.write_at(b"old", 0)?;
                let before = sim.disk().hash();
                rt.hold_changes();
                let (own, said) = (rt.clone(), Arc::new(Mutex::new(None)));
                let told = said.clone();
                let helper = rt.spawn("changes", move || *told.lock() = Some(change(&own, how)))?;
                let mut text = [0; 3];
                rt.env.open("old", OpenMode::READ_WRITE)?.read_at(&mut text, 0)?;
                file.sync()?;
                assert_eq!(&text, b"old");
                (0..100).for_each(|_| rt.step());
                assert!(said.lock().is_none(), "change {how} did not wait");
                match refused {
                    true => rt.refuse_changes(Error::internal("refused")),
                    false => rt.allow_changes(),
                }
                helper.join()?;
                let said = said.lock().take().expect("it has ended").map_err(|e| e.code());
                let is_as_before = sim.disk().hash() == before;
                match refused {
                    true => assert!(said == Err(Code::Internal) && is_as_before, "change {how}"),
                    false => assert_eq!(said, Ok(()), "change {how}"),
                }
                rt.allow_changes();
                rt.env.open("made later", OpenMode::READ_WRITE)?.write_at(b"text", 0)?;
                sim.stop();
            }
        }
        Ok(())
    }
}
