//! Every entry of the catalogue of errors is provoked and its text compared: what happened, what it
//! names, what to do. An entry without a provocation fails the test, unless `ELSEWHERE` says which
//! test of its layer provokes it and why it cannot be had from here.

mod provoke;

use evenkeel::{Code, Error};
use std::collections::BTreeSet;

/// Codes that only bytes with right checksums and wrong content give, or only a store too large to
/// make: they are the answer to a bug or to an attacker.
const ELSEWHERE: &[(Code, &str)] = &[
    (Code::KeyTooLong, "a guard: definitions that allow longer keys get a hidden id (E5)"),
    (Code::SpaceDamaged, "a space map of right checksum that contradicts itself: rot test"),
    (Code::SpaceLimit, "needs 16 TiB of pages"),
    (Code::ValueTooLong, "needs a value of 4 GiB; columns refuse longer ones as ValueRange"),
    (Code::TreeDamaged, "a tree of right checksums that leads nowhere"),
    (Code::TreeOpMisfit, "a logged change of right checksum on a page it does not fit"),
    (Code::TreeGone, "a handle of a dropped tree; tables answer TableMissing first"),
    (Code::OverflowDamaged, "an overflow chain of right checksums that is another value's"),
    (Code::IndexGone, "an index dropped between lookup and scan; tables answer IndexMissing"),
    (Code::TxnTooLong, "needs 4 billion row operations in one transaction"),
    (Code::TxnEnded, "txn/txns_tests: tables answer TransactionEnded first"),
    (Code::LocksFull, "txn/locks_tests: fills the lock table"),
    (Code::CatalogDamaged, "catalog rows of right checksum that contradict each other"),
    (Code::TreeNotEmpty, "a bulk load into a tree with rows: index builds make new ones"),
    (Code::KeysNotAscending, "a bulk load out of order: builds sort"),
    (Code::IndexTooYoung, "tables/tests: a snapshot older than an index"),
];

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
fn every_error_is_provoked_and_names_what_it_is_about() {
    let mut provoked: BTreeSet<&str> = BTreeSet::new();
    let mut wrong = Vec::new();
    for (code, names, provocation) in provoke::ALL {
        provoked.insert(code.name());
        let Ok(error) = std::panic::catch_unwind(provocation) else {
            wrong.push(format!("{}: not provoked", code.name()));
            continue;
        };
        println!("{:<20} {error}", code.name());
        wrong.extend(check(*code, &error, names).err());
    }
    for code in Code::ALL {
        let excused = ELSEWHERE.iter().any(|(c, _)| c == code);
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
    assert!(provoked.len() >= 40);
}
