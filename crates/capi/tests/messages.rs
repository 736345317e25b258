//! Messages of the engine reach the embedding program. This test is a program of its own, because a
//! process has one logger.

use evenkeel_capi::messages::ek_messages;
use evenkeel_capi::{EkBytes, EkError, database};
use std::sync::Mutex;

static SAID: Mutex<Vec<(u8, String)>> = Mutex::new(Vec::new());

extern "C" fn take(level: u8, text: EkBytes) {
    // SAFETY: the bytes live during the call.
    let text = String::from_utf8_lossy(unsafe { text.get() }).into_owned();
    SAID.lock().expect("no panic").push((level, text));
}

#[test]
fn an_open_sends_a_message() {
    ek_messages(take);
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().to_str().expect("a path");
    // SAFETY: an error of zeros is valid; all pointers are valid during the calls.
    unsafe {
        let mut error: EkError = std::mem::zeroed();
        for _ in 0..2 {
            let db = database::ek_open(EkBytes::of(path.as_bytes()), std::ptr::null(), &mut error);
            assert!(!db.is_null());
            assert_eq!(database::ek_close(db, &mut error), 0);
        }
    }
    let said = SAID.lock().expect("no panic");
    let opened = said.iter().filter(|(level, text)| *level == 3 && text.contains("open after"));
    assert_eq!(opened.count(), 2, "{said:?}");
    assert!(said.iter().all(|(level, _)| (1..=3).contains(level)), "{said:?}");
}
