//! A ledger: transfers between accounts from several threads. Each is one transaction over two
//! tables: two balances change, and two entries say why. `Database::transact` repeats it when it
//! meets a younger change or is chosen to end a deadlock. The sum of all accounts stays what it
//! was, in every snapshot on the way.
//!
//! `cargo run --example ledger -- [DIRECTORY]` (without one, in memory)

use evenkeel::{Database, Direction, Isolation, Options, Result, Txn, exactly, record};

record! {
    /// An account.
    pub struct Account in "accounts" {
        id: u32,
        balance: i64,
    }
    key(id)
}

record! {
    /// A change of an account.
    pub struct Entry in "entries" {
        id: Option<i64>,
        account: u32,
        amount: i64,
    }
    key(id)
    auto(id)
    index by_account(account)
}

const ACCOUNTS: u32 = 10;
const BALANCE: i64 = 1000;

fn create(db: &Database) -> Result<()> {
    db.create_table_of::<Account>()?;
    db.create_table_of::<Entry>()?;
    db.transact(|txn| {
        let (accounts, entries) = (txn.records::<Account>()?, txn.records::<Entry>()?);
        for account in 0..ACCOUNTS {
            accounts.insert(&Account { id: account, balance: BALANCE })?;
            entries.insert(&Entry { id: None, account, amount: BALANCE })?;
        }
        Ok(())
    })
}

/// Moves up to `amount`; accounts are never overdrawn.
fn transfer(txn: &Txn, from: u32, to: u32, amount: i64) -> Result<()> {
    let (accounts, entries) = (txn.records::<Account>()?, txn.records::<Entry>()?);
    // Locked, because they are changed next: fewer transactions have to repeat.
    let balance =
        |id| Ok(accounts.get_for_update(id)?.map_or(0, |account: Account| account.balance));
    let (source, target) = (balance(from)?, balance(to)?);
    let amount = amount.min(source);
    for (id, balance, amount) in [(from, source - amount, -amount), (to, target + amount, amount)] {
        accounts.update(&Account { id, balance })?;
        entries.insert(&Entry { id: None, account: id, amount })?;
    }
    Ok(())
}

/// The sum of all balances in one snapshot; each is the sum of its entries.
fn total(db: &Database) -> Result<i64> {
    db.transact(|txn| {
        let entries = txn.table("entries")?.index("by_account")?;
        let mut total = 0;
        for account in txn.records::<Account>()?.scan(.., Direction::Forward)? {
            let Account { id, balance } = account?;
            let amounts = entries.scan(exactly(id), Direction::Forward)?;
            let sum = amounts.map(|entry| entry?.get::<i64>("amount")).sum::<Result<i64>>()?;
            assert_eq!(sum, balance, "a snapshot saw half a transfer");
            total += balance;
        }
        Ok(total)
    })
}

/// Transfers from `threads` threads while another one keeps adding up; how many were repeated.
fn run(db: &Database, isolation: Isolation, threads: u32, transfers: u32) -> Result<u32> {
    std::thread::scope(|scope| {
        let work = |thread: u32| {
            let mut tries = 0;
            for i in 0..transfers {
                let from = (i * 7 + thread) % ACCOUNTS;
                let to = (from + 1 + i % (ACCOUNTS - 1)) % ACCOUNTS;
                db.transact_with(isolation, |txn| {
                    tries += 1;
                    transfer(txn, from, to, i64::from(i % 50))
                })?;
            }
            Ok(tries - transfers)
        };
        let workers: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            assert_eq!(total(db)?, i64::from(ACCOUNTS) * BALANCE);
        }
        workers.into_iter().map(|worker| worker.join().expect("no worker panics")).sum()
    })
}

fn main() -> Result<()> {
    let db = match std::env::args().nth(1) {
        Some(directory) => Database::open(directory)?,
        None => Database::open_with("unused", Options::in_memory())?,
    };
    create(&db)?;
    let repeated = run(&db, Isolation::RepeatableRead, 4, 500)?;
    println!("2000 transfers, {repeated} repeated; the sum is {}", total(&db)?);
    db.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_stays_the_same() {
        for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
            let db = Database::open_with("unused", Options::in_memory()).expect("opens");
            create(&db).expect("creates");
            run(&db, isolation, 4, 50).expect("runs");
            assert_eq!(total(&db).expect("adds up"), i64::from(ACCOUNTS) * BALANCE);
        }
    }
}
