//! `evenkeel backup`: takes a backup of a closed database, full or onto an earlier one, compares a
//! backup with its manifest, and makes a database of a backup.

use crate::{Found, Outcome, open};
use evenkeel::{BackupReport, Code, Error, Kind, restore_backup_with, verify_backup_with};
use serde_json::{Value, json};
use std::path::Path;

/// Copies a database that no process has open; with a base, what has changed since.
pub fn take(dir: &Path, to: &Path, base: Option<&Path>) -> Found {
    let taken = open(dir).and_then(|db| match base {
        Some(base) => db.backup_onto(base, to),
        None => db.backup(to),
    });
    done(taken, dir, to, "backed up to")
}

/// Makes a database of a backup. Its bases are looked for beside it, and in the directories that
/// lie in `places`.
pub fn restore(backup: &Path, to: &Path, places: &[&Path]) -> Found {
    done(restore_backup_with(backup, to, places), backup, to, "restored to")
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

/// Compares a backup, and the bases that it builds on, with their manifests.
pub fn verify(backup: &Path, places: &[&Path]) -> Found {
    let check = match verify_backup_with(backup, places) {
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
    let is_damage = error.kind() == Kind::Corrupt
        || matches!(error.code(), Code::BackupIncomplete | Code::BackupBase);
    let outcome = if is_damage { Outcome::Damaged } else { Outcome::CouldNot };
    let problem = error.to_string();
    let text = format!("{}: {problem}\n", dir.display());
    Found { outcome, text, json: json!({"clean": false, "problems": [problem]}) }
}
