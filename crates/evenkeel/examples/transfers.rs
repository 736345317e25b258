//! Transfers between accounts from several threads. Each is one transaction that changes two rows;
//! `Database::transact` repeats it when it meets a younger change or is chosen to end a deadlock.
//! The sum of all accounts stays what it was, in every snapshot on the way.
//!
//! `cargo run --example transfers -- [DIRECTORY]` (without one, in memory)

use evenkeel::ValueRef::Int;
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, Isolation, LockWait, Options, Range,
    Result, Row, TableSpec, Txn,
};

const ACCOUNTS: i64 = 10;
const BALANCE: i64 = 1000;

fn create(db: &Database) -> Result<()> {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("account", ColumnType::Int64))
        .column(ColumnSpec::new("balance", ColumnType::Int64))
        .primary_key(&["account"]);
    db.create_table("accounts", &spec)?;
    db.transact(|txn| {
        let mut accounts = txn.table("accounts")?;
        for account in 0..ACCOUNTS {
            accounts.insert(&[Int(account), Int(BALANCE)])?;
        }
        Ok(())
    })
}

fn balance(txn: &mut Txn, account: i64) -> Result<i64> {
    let mut row = Row::new();
    let mut accounts = txn.table("accounts")?;
    // Locked, because it is changed next: fewer transactions have to repeat.
    accounts.get_for_update(&[Int(account)], LockWait::Wait, &mut row)?;
    match row.get("balance")? {
        Int(balance) => Ok(balance),
        _ => Ok(0),
    }
}

/// Moves up to `amount`; accounts are never overdrawn.
fn transfer(txn: &mut Txn, from: i64, to: i64, amount: i64) -> Result<()> {
    let (source, target) = (balance(txn, from)?, balance(txn, to)?);
    let amount = amount.min(source);
    let mut accounts = txn.table("accounts")?;
    accounts.update(&[Int(from)], &[(1, Int(source - amount))])?;
    accounts.update(&[Int(to)], &[(1, Int(target + amount))])?;
    Ok(())
}

/// The sum of all balances in one snapshot.
fn total(db: &Database) -> Result<i64> {
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let mut scan = txn.table("accounts")?.scan(Range::ALL, Direction::Forward)?;
    let (mut row, mut total) = (Row::new(), 0);
    while scan.next(&mut row)? {
        if let Int(balance) = row.get("balance")? {
            total += balance;
        }
    }
    Ok(total)
}

/// Transfers from `threads` threads while another one keeps adding up; how many were repeated.
fn run(db: &Database, threads: i64, transfers: i64) -> Result<u64> {
    std::thread::scope(|scope| {
        let work = |thread: i64| {
            let mut tries = 0;
            for i in 0..transfers {
                let (from, amount) = ((i * 7 + thread) % ACCOUNTS, i % 50);
                let to = (from + 1 + i % (ACCOUNTS - 1)) % ACCOUNTS;
                db.transact(|txn| {
                    tries += 1;
                    transfer(txn, from, to, amount)
                })?;
            }
            Ok(tries - transfers as u64)
        };
        let workers: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
        while !workers.iter().all(|w| w.is_finished()) {
            assert_eq!(total(db)?, ACCOUNTS * BALANCE, "a snapshot saw half a transfer");
        }
        let mut repeated = 0;
        for worker in workers {
            repeated += worker.join().expect("no worker panics")?;
        }
        Ok(repeated)
    })
}

fn main() -> Result<()> {
    let db = match std::env::args().nth(1) {
        Some(directory) => Database::open(directory)?,
        None => Database::open_with("unused", Options::in_memory())?,
    };
    create(&db)?;
    let repeated = run(&db, 4, 500)?;
    println!("2000 transfers, {repeated} repeated; the sum is {}", total(&db)?);
    db.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_stays_the_same() {
        let db = Database::open_with("unused", Options::in_memory()).expect("open");
        create(&db).expect("create");
        run(&db, 4, 100).expect("run");
        assert_eq!(total(&db).expect("total"), ACCOUNTS * BALANCE);
    }
}
