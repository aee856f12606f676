//! Statements over many rows: each statement is a change of threads, so few of them are to do for many rows.

/// Rows of one statement. Each halves the one before; all of them stay prepared.
const LENGTHS: [usize; 7] = [64, 32, 16, 8, 4, 2, 1];
/// Entries of one list. What is left is filled up with the last one.
const LISTS: [usize; 3] = [64, 8, 1];

/// The same statement for several numbers of rows, or of entries in a list.
#[derive(Debug)]
pub struct Bulk {
    /// Places for one row.
    pub columns: usize,
    unnumbered: Vec<(usize, String)>,
    numbered: Vec<(usize, String)>,
}

impl Bulk {
    /// Adds rows: `into` is the table and its columns, `fixed` what each row has behind its places.
    ///
    /// A failure undoes the whole transaction anyway: SQLite need not be ready to undo the one statement, for which it
    /// would copy every page before it changes it.
    pub fn rows(into: &str, columns: usize, fixed: &str, end: &str) -> Self {
        let text = |begin: &str, rows: usize, place: &dyn Fn(usize) -> String| {
            let row = |row: usize| {
                let places: Vec<String> = (1..=columns).map(|column| place(row * columns + column)).collect();
                format!("({}{fixed})", places.join(","))
            };
            let rows: Vec<String> = (0..rows).map(row).collect();
            format!("{begin} {into} VALUES {} {end}", rows.join(","))
        };
        Self {
            columns,
            unnumbered: LENGTHS.map(|rows| (rows, text("INSERT OR ROLLBACK INTO", rows, &|_| "?".into()))).into(),
            numbered: LENGTHS.map(|rows| (rows, text("INSERT INTO", rows, &|nth| format!("${nth}")))).into(),
        }
    }

    /// Looks a list up: every `#` in the text is a place, the last one is for the list.
    pub fn list(sql: &str) -> Self {
        let fixed = sql.matches('#').count() - 1;
        let text = |entries: usize, place: &dyn Fn(usize) -> String| {
            let mut parts = sql.split('#');
            let mut text = parts.next().unwrap_or_default().to_owned();
            for (nth, part) in (1..).zip(parts) {
                match nth > fixed {
                    true => text += &(0..entries).map(|entry| place(nth + entry)).collect::<Vec<_>>().join(","),
                    false => text += &place(nth),
                }
                text += part;
            }
            text
        };
        Self {
            columns: 1,
            unnumbered: LISTS.map(|entries| (entries, text(entries, &|_| "?".into()))).into(),
            numbered: LISTS.map(|entries| (entries, text(entries, &|nth| format!("${nth}")))).into(),
        }
    }

    fn texts(&self, numbered: bool) -> &[(usize, String)] {
        if numbered { &self.numbered } else { &self.unnumbered }
    }

    /// The longest for no more than so many.
    pub fn longest(&'static self, left: usize, numbered: bool) -> (usize, &'static str) {
        let texts = self.texts(numbered);
        let found = texts.iter().find(|(length, _)| *length <= left).or(texts.last());
        found.map_or((1, ""), |(length, sql)| (*length, sql))
    }

    /// The shortest for no fewer than so many; the longest where none is long enough.
    pub fn enough(&'static self, wanted: usize, numbered: bool) -> (usize, &'static str) {
        let texts = self.texts(numbered);
        let found = texts.iter().rev().find(|(length, _)| *length >= wanted).or(texts.first());
        found.map_or((1, ""), |(length, sql)| (*length, sql))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_lists_have_as_many_places_as_they_say() {
        let rows: &'static Bulk = Box::leak(Box::new(Bulk::rows("t (a, b, c)", 2, ",0", "")));
        assert_eq!(rows.longest(3, false), (2, "INSERT OR ROLLBACK INTO t (a, b, c) VALUES (?,?,0),(?,?,0) "));
        assert_eq!(rows.longest(1, true), (1, "INSERT INTO t (a, b, c) VALUES ($1,$2,0) "));
        assert_eq!(rows.longest(1_000, true).0, 64);
        let list: &'static Bulk = Box::leak(Box::new(Bulk::list("x = # AND y IN (#) AND z")));
        assert_eq!(list.enough(1, true), (1, "x = $1 AND y IN ($2) AND z"));
        assert_eq!(list.enough(2, false), (8, "x = ? AND y IN (?,?,?,?,?,?,?,?) AND z"));
        assert_eq!(list.enough(65, false).0, 64);
    }
}
