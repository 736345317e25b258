//! Settings that change while the database is open.

use crate::api::options::{Durability, Options, SETTINGS, Setting};
use crate::engine::Engine;
use crate::memory::automatic_size::AutomaticSize;
use evenkeel_base::{Code, Error, Result, sync::Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The present values of the settings that may change.
pub(crate) struct Present {
    /// Held while a setting is changed.
    changing: Mutex<()>,
    log_size: AtomicU64,
    durability: AtomicU64,
    lock_wait_ms: AtomicU64,
}

impl Present {
    pub(crate) fn new(options: &Options) -> Present {
        Present {
            changing: Mutex::default(),
            log_size: AtomicU64::new(options.log_size),
            durability: AtomicU64::new(number_of(options.durability)),
            lock_wait_ms: AtomicU64::new(options.lock_wait_timeout.as_millis() as u64),
        }
    }

    /// When a commit returns.
    pub(crate) fn durability(&self) -> Durability {
        match self.durability.load(Ordering::Relaxed) {
            0 => Durability::Lazy,
            1 => Durability::Sync,
            _ => Durability::Write,
        }
    }
}

fn number_of(durability: Durability) -> u64 {
    match durability {
        Durability::Lazy => 0,
        Durability::Sync => 1,
        Durability::Write => 2,
    }
}

/// # Errors
/// `SettingUnknown`.
fn setting(name: &str) -> Result<&'static Setting> {
    let unknown = || Error::new(Code::SettingUnknown).with("setting", name);
    SETTINGS.iter().find(|s| s.name == name).ok_or_else(unknown)
}

impl Engine {
    /// 0 makes the size automatic.
    fn set_memory(&self, memory: u64) -> Result<()> {
        match memory {
            0 => self.memory_size.follow(AutomaticSize::of(self.options.machine_bytes())),
            bytes => self.memory_size.fix(bytes),
        }
    }

    /// # Errors
    /// `OptionOutOfRange`; a log that a test has made small may also be smaller.
    fn check_log_size(&self, setting: &Setting, log: u64) -> Result<()> {
        match self.options.geometry.log_bytes {
            Some(least) if (least..=setting.max).contains(&log) => Ok(()),
            _ => setting.check(log),
        }
    }

    /// Changes a setting while the database is open ([`crate::Database::set`]).
    pub(crate) fn set(&self, name: &str, value: u64) -> Result<()> {
        let setting = setting(name)?;
        if setting.when != "online" {
            let error = Error::new(Code::SettingFixed).with("setting", name);
            return Err(error.with("chosen", setting.when));
        }
        match name {
            "log_size" => self.check_log_size(setting, value)?,
            _ => setting.check(value)?,
        }
        let present = &self.present;
        let _one = present.changing.lock();
        let place = match name {
            "memory_size" => return self.set_memory(value),
            "log_size" => {
                self.log.set_log_bytes(value);
                &present.log_size
            }
            "durability" => &present.durability,
            _ => {
                self.store.set_lock_wait(Duration::from_millis(value));
                &present.lock_wait_ms
            }
        };
        place.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// The present value of a setting.
    ///
    /// # Errors
    /// `SettingUnknown`.
    pub(crate) fn setting(&self, name: &str) -> Result<u64> {
        let (present, options) = (&self.present, &self.options);
        let load = |place: &AtomicU64| place.load(Ordering::Relaxed);
        Ok(match setting(name)?.name {
            "memory_size" => self.memory_size.get(),
            "durability" => load(&present.durability),
            "lock_wait_timeout" => load(&present.lock_wait_ms),
            "log_size" => load(&present.log_size),
            "doublewrite" => u64::from(options.doublewrite),
            _ => u64::from(self.checkpointer.superblock().page_size),
        })
    }
}
