//! The engine's messages to its administrator (the `log` facade), passed to the embedding program.

use crate::value::{EkBytes, catch};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::sync::OnceLock;

/// Receives a message: 1 error, 2 warning, 3 information, and the text. Called by any thread,
/// possibly by several at the same time; it must not call the engine.
pub type EkMessage = extern "C" fn(level: u8, text: EkBytes);

struct Messages(OnceLock<EkMessage>);

static MESSAGES: Messages = Messages(OnceLock::new());

impl Log for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Info && metadata.target().starts_with("evenkeel")
    }

    fn log(&self, record: &Record<'_>) {
        if let (true, Some(take)) = (self.enabled(record.metadata()), self.0.get()) {
            let text = record.args().to_string();
            let level = match record.level() {
                Level::Error => 1,
                Level::Warn => 2,
                _ => 3,
            };
            take(level, EkBytes::of(text.as_bytes()));
        }
    }

    fn flush(&self) {}
}

/// From now on passes errors, warnings and information to `take` until the process ends. Only the
/// first call has an effect.
#[unsafe(no_mangle)]
pub extern "C" fn ek_messages(take: EkMessage) {
    catch((), || {
        if MESSAGES.0.set(take).is_ok() && log::set_logger(&MESSAGES).is_ok() {
            log::set_max_level(LevelFilter::Info);
        }
    });
}
