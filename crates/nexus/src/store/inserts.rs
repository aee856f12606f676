//! The statements that add many rows at once.

use std::sync::LazyLock;

/// Rows that one statement adds. Each halves the one before: whatever is left takes few statements, each of which is a
/// change of threads, and all of them stay prepared.
const LENGTHS: [usize; 10] = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1];

/// Statements by length.
pub(super) type ByLength = [(usize, String); LENGTHS.len()];

/// The statements that add rows. SQLite's places have no numbers because it looks a numbered one up by going through all
/// of them.
pub(super) struct Inserts {
    pub(super) rows: ByLength,
    pub(super) sheaves: ByLength,
    pub(super) begun: ByLength,
}

/// A failure undoes the whole transaction anyway: SQLite need not be ready to undo the one statement, for which it
/// would copy every page before it changes it.
pub(super) static UNNUMBERED: LazyLock<Inserts> =
    LazyLock::new(|| inserts("INSERT OR ROLLBACK INTO", |_| "?".to_owned()));
pub(super) static NUMBERED: LazyLock<Inserts> = LazyLock::new(|| inserts("INSERT INTO", |place| format!("${place}")));

fn inserts(insert: &str, place: impl Fn(usize) -> String) -> Inserts {
    let texts = |table: &str, columns: usize| {
        LENGTHS.map(|rows| {
            let row = |row: usize| {
                let places: Vec<String> = (1..=columns).map(|column| place(row * columns + column)).collect();
                format!("({})", places.join(","))
            };
            let values: Vec<String> = (0..rows).map(row).collect();
            (rows, format!("{insert} {table} VALUES {}", values.join(",")))
        })
    };
    Inserts {
        rows: texts("audit (pos, body)", 2),
        sheaves: texts("audit_place (last, session, tool, outcome, places)", 5),
        begun: texts("begun (call_id, chain, pos)", 3),
    }
}

/// The longest statement for as many as are left.
pub(super) fn longest(statements: &ByLength, left: usize) -> &(usize, String) {
    statements.iter().find(|(length, _)| *length <= left).unwrap_or(&statements[LENGTHS.len() - 1])
}
