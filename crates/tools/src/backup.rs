//! `evenkeel backup`: takes a backup of a closed database, compares a backup with its manifest, and
//! makes a database of a backup.

use crate::{Found, Outcome, open};
use evenkeel::{BackupReport, Code, Error, Kind, restore_backup, verify_backup};
use serde_json::{Value, json};
use std::path::Path;

/// Copies a database that no process has open.
pub fn take(dir: &Path, to: &Path) -> Found {
    let taken = open(dir).and_then(|db| db.backup(to));
    done(taken, dir, to, "backed up to")
}

/// Makes a database of a backup.
pub fn restore(backup: &Path, to: &Path) -> Found {
    done(restore_backup(backup, to), backup, to, "restored to")
}

fn done(report: Result<BackupReport, Error>, from: &Path, to: &Path, what: &str) -> Found {
    match report {
        Ok(report) => {
            let (from, to) = (from.display(), to.display());
            let BackupReport { end, bytes, files, .. } = report;
            let text = format!(
                "{from}: {what} {to}: {bytes} bytes in {files} files, as of log position {end}\n"
            );
            Found { outcome: Outcome::Clean, text, json: of_report(&report, &[]) }
        }
        Err(error) => failed(from, &error),
    }
}

/// Compares a backup with its manifest.
pub fn verify(backup: &Path) -> Found {
    let check = match verify_backup(backup) {
        Ok(check) => check,
        Err(error) => return failed(backup, &error),
    };
    let mut text = String::new();
    for problem in &check.problems {
        text += problem;
        text.push('\n');
    }
    let BackupReport { end, bytes, files, .. } = check.report;
    let name = backup.display();
    let (outcome, found) = match check.problems.len() {
        0 => (Outcome::Clean, "intact".to_string()),
        count => (Outcome::Damaged, format!("DAMAGED: {count} files are missing or differ")),
    };
    text += &format!("{name}: {bytes} bytes in {files} files, as of log position {end}: {found}\n");
    Found { outcome, text, json: of_report(&check.report, &check.problems) }
}

fn of_report(report: &BackupReport, problems: &[String]) -> Value {
    json!({"bytes": report.bytes, "files": report.files, "end_lsn": report.end.0,
        "clean": problems.is_empty(), "problems": problems})
}

fn failed(dir: &Path, error: &Error) -> Found {
    let is_damage = error.kind() == Kind::Corrupt || error.code() == Code::BackupIncomplete;
    let outcome = if is_damage { Outcome::Damaged } else { Outcome::CouldNot };
    let problem = error.to_string();
    let text = format!("{}: {problem}\n", dir.display());
    Found { outcome, text, json: json!({"clean": false, "problems": [problem]}) }
}
