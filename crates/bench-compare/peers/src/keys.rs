//! How rows become keys and values of an ordered key-value store: big-endian integers (none is
//! negative), so that bytes sort as numbers.

use evenkeel_bench::rows::Row;

/// The longest key: price, date and time, customer, primary key.
pub const KEY_MAX: usize = 24;
/// Where `data` begins in a stored row.
pub const DATA_AT: usize = 24;
/// Lengths of the index keys.
pub const KEY_BYTES: [usize; 3] = [20, 20, 24];

/// A key of any index, zeros after its length.
pub type Key = [u8; KEY_MAX];

/// The columns that keys are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Seconds since 1970.
    pub dateandtime: i64,
    /// Cash register.
    pub cashregisterid: i32,
    /// Customer.
    pub customerid: i32,
    /// Product.
    pub productid: i32,
    /// Price.
    pub price: i32,
}

impl Columns {
    /// Those of a row.
    pub fn of(row: &Row) -> Columns {
        Columns {
            dateandtime: row.dateandtime,
            cashregisterid: row.cashregisterid,
            customerid: row.customerid,
            productid: row.productid,
            price: row.price,
        }
    }

    /// Those of a stored row.
    pub fn read(value: &[u8]) -> Columns {
        Columns {
            dateandtime: i64::from_be_bytes(part(value, 0)),
            cashregisterid: i32::from_be_bytes(part(value, 8)),
            customerid: i32::from_be_bytes(part(value, 12)),
            productid: i32::from_be_bytes(part(value, 16)),
            price: i32::from_be_bytes(part(value, 20)),
        }
    }

    /// The key in one of the three indexes.
    pub fn index_key(&self, index: usize, pk: i64) -> Key {
        let mut key = [0; KEY_MAX];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            key[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        match index {
            0 => put(&self.productid.to_be_bytes()),
            1 => put(&self.cashregisterid.to_be_bytes()),
            _ => {
                put(&self.price.to_be_bytes());
                put(&self.dateandtime.to_be_bytes());
            }
        }
        put(&self.customerid.to_be_bytes());
        if index < 2 {
            put(&self.price.to_be_bytes());
        }
        put(&pk.to_be_bytes());
        key
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
}

/// The primary key that these bytes end with.
pub fn pk_of(key: &[u8]) -> i64 {
    i64::from_be_bytes(part(key, key.len().saturating_sub(8)))
}

/// Appends the stored form of a row.
pub fn write_row(row: &Row, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&row.dateandtime.to_be_bytes());
    for column in [row.cashregisterid, row.customerid, row.productid, row.price] {
        out.extend_from_slice(&column.to_be_bytes());
    }
    out.extend_from_slice(row.data());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_columns() {
        let row =
            Columns { dateandtime: 7, cashregisterid: 1, customerid: 2, productid: 3, price: 4 };
        let next = Columns { customerid: 300, ..row };
        for index in 0..3 {
            let (low, high) = (row.index_key(index, 9), next.index_key(index, 1));
            assert!(low < high && pk_of(&low[..KEY_BYTES[index]]) == 9);
            assert!(low[KEY_BYTES[index]..].iter().all(|b| *b == 0));
        }
        let mut bytes = Vec::new();
        write_row(&Row { dateandtime: 7, productid: 3, ..Row::default() }, &mut bytes);
        assert_eq!(Columns::read(&bytes).productid, 3);
        assert_eq!(Columns::read(&[]).productid, 0);
    }
}
