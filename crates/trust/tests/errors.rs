//! Every entry of the catalogue of errors is provoked, and its text is compared: what happened,
//! what the error names, what to do. An entry without a provocation fails the test, unless
//! `ELSEWHERE` names a test of the entry's layer that provokes it; the test checks that this other
//! test exists.

mod provoke;

use evenkeel::{Code, ColumnSpec, ColumnType, Database, Error, TableSpec};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Codes that need more resources than a machine has, unsafe calls, or a certain moment of a
/// backup: tests of other crates provoke them and compare their texts.
const ELSEWHERE: &[(Code, &str, &str)] = &[
    (Code::BackupRunning, BACKUP, "one_backup_runs_at_a_time_and_a_close_ends_it"),
    (Code::BackupBehindLog, BACKUP, "a_backup_that_falls_behind_the_log_fails_and_writers_go_on"),
    (Code::BackupIncomplete, BACKUP, "every_missing_or_changed_file_is_named"),
    (Code::BackupDamaged, BACKUP, "every_missing_or_changed_file_is_named"),
    (
        Code::BackupBase,
        "evenkeel/src/backup/chain_tests.rs",
        "a_missing_or_wrong_base_is_refused_by_verify_and_restore",
    ),
    (Code::Forked, "capi/tests/fork.rs", "a_forked_child_is_refused_and_its_parent_goes_on"),
    (Code::SpaceLimit, "pages/src/space/space_tests.rs", "the_page_space_ends_at_its_limit"),
    (Code::TxnTooLong, "txn/src/txns_tests.rs", "a_transaction_ends_at_its_last_operation"),
];

const BACKUP: &str = "evenkeel/src/backup/backup_tests.rs";

fn check(code: Code, error: &Error, names: &[&str]) -> Result<(), String> {
    let text = error.to_string();
    let tail = format!("{} [{}]", code.next_step(), code.name());
    if error.code() != code {
        return Err(format!("{code:?}: got {text}"));
    }
    if !text.starts_with(code.text()) || !text.ends_with(&tail) {
        return Err(format!("{code:?}: not by the catalogue: {text}"));
    }
    match names.iter().find(|name| !text.contains(**name)) {
        Some(name) => Err(format!("{code:?}: does not name {name:?}: {text}")),
        None => Ok(()),
    }
}

#[test]
fn every_error_is_provoked_and_names_its_subject() {
    let mut provoked: BTreeSet<&str> = BTreeSet::new();
    let mut wrong = Vec::new();
    for (code, names, provocation) in provoke::ALL.iter().chain(provoke::layers::ALL) {
        provoked.insert(code.name());
        let Ok(error) = std::panic::catch_unwind(provocation) else {
            wrong.push(format!("{}: not provoked", code.name()));
            continue;
        };
        println!("{:<20} {error}", code.name());
        wrong.extend(check(*code, &error, names).err());
    }
    for code in Code::ALL {
        let elsewhere = ELSEWHERE.iter().find(|(c, ..)| c == code);
        let excused = elsewhere.is_some_and(|(_, file, test)| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
            let text = std::fs::read_to_string(path).expect("the file is there");
            text.contains(&format!("fn {test}()")) && text.contains(&format!("{code:?}"))
        });
        if excused == provoked.contains(code.name()) {
            wrong.push(format!(
                "{}: {}",
                code.name(),
                if excused { "excused and provoked" } else { "not provoked" }
            ));
        }
    }
    println!("{} of {} provoked here", provoked.len(), Code::ALL.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(provoked.len() + ELSEWHERE.len() == Code::ALL.len());
}

/// A process that opens a directory in use gets an error that names the other process, and disturbs
/// nothing. It can open the directory when the other process has closed it.
#[test]
fn a_second_process_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path()).expect("opens");
    let opened = || {
        let out = Command::new(env!("CARGO_BIN_EXE_evenkeel-trust-child"))
            .args(["open", &dir.path().display().to_string()])
            .output()
            .expect("the child runs");
        String::from_utf8(out.stdout).expect("text")
    };
    for _ in 0..2 {
        let said = opened();
        let code = Code::DirectoryBusy;
        let parts = [code.text(), "file=", "evenkeel.lock", code.next_step(), "[DirectoryBusy]"];
        let owner = format!("pid={}", std::process::id());
        for part in parts.into_iter().chain([owner.as_str()]) {
            assert!(said.starts_with("E ") && said.contains(part), "{part} in {said}");
        }
        let spec = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64));
        db.create_table("t", &spec.primary_key(&["id"])).expect("writes go on");
        db.drop_table("t").expect("writes go on");
    }
    db.close().expect("closes");
    let said = opened();
    assert!(said.starts_with("opened "), "{said}");
}
