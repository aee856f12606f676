//! Finds the rows that Loki will never take, and gets all others in.

use std::ops::Range;

/// Refusals of one batch that are looked into. After them a refused piece is given up whole: a backlog that is refused
/// row by row (too old, say) would take twice as many pushes as it has rows.
const MOST_REFUSALS: usize = 16;

/// What became of one push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed<N> {
    Taken,
    /// Something in it is wrong, and always will be. What is right in it may have been taken.
    Refused(String),
    /// Right, perhaps, but too much at once.
    TooLarge(String),
    /// Neither taken nor refused: to be tried again.
    NotNow(N),
}

/// A batch on its way: which piece is next, and how far it came.
#[derive(Debug)]
pub struct Sift<N> {
    /// The next piece is the last one here; each begins where the one before it ended.
    pieces: Vec<Range<usize>>,
    refusals: usize,
    /// Everything before this is settled: taken, or set aside.
    pub settled: usize,
    pub aside: Vec<(usize, String)>,
    pub too_large: bool,
    /// Why it came no farther.
    pub stopped: Option<N>,
}

impl<N> Sift<N> {
    pub fn new(count: usize) -> Self {
        let pieces = std::iter::once(0..count).filter(|whole| !whole.is_empty()).collect();
        Self { pieces, refusals: 0, settled: 0, aside: Vec::new(), too_large: false, stopped: None }
    }

    /// What to push now. None: each row is settled, or the server wants a pause.
    pub fn next(&self) -> Option<Range<usize>> {
        match self.stopped {
            None => self.pieces.last().cloned(),
            Some(_) => None,
        }
    }

    /// What became of that. A piece that is refused is halved, until what is wrong in it stands alone.
    pub fn came(&mut self, pushed: Pushed<N>) {
        let Some(piece) = self.pieces.pop() else { return };
        let (reason, given_up) = match pushed {
            Pushed::Taken => return self.settled = piece.end,
            Pushed::NotNow(why) => return self.stopped = Some(why),
            Pushed::Refused(reason) => {
                self.refusals += 1;
                (reason, self.refusals > MOST_REFUSALS)
            }
            Pushed::TooLarge(reason) => {
                self.too_large = true;
                (reason, false)
            }
        };
        if piece.len() == 1 || given_up {
            self.settled = piece.end;
            self.aside.extend(piece.map(|row| (row, reason.clone())));
            return;
        }
        let middle = piece.start + piece.len() / 2;
        self.pieces.push(middle..piece.end);
        self.pieces.push(piece.start..middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A Loki that takes what is right in a push, and refuses the whole with the first thing that is wrong.
    #[derive(Default)]
    struct Server {
        wrong: BTreeSet<usize>,
        most: Option<usize>,
        pauses_at: Option<usize>,
        stored: BTreeSet<usize>,
        pushes: usize,
    }

    impl Server {
        fn push(&mut self, mut piece: Range<usize>) -> Pushed<&'static str> {
            self.pushes += 1;
            if self.pauses_at == Some(self.pushes) {
                return Pushed::NotNow("later");
            }
            if self.most.is_some_and(|most| piece.len() > most) {
                return Pushed::TooLarge("too much".to_owned());
            }
            self.stored.extend(piece.clone().filter(|row| !self.wrong.contains(row)));
            match piece.find(|row| self.wrong.contains(row)) {
                Some(row) => Pushed::Refused(format!("row {row}")),
                None => Pushed::Taken,
            }
        }
    }

    fn sifted(count: usize, server: &mut Server) -> Sift<&'static str> {
        let mut sift = Sift::new(count);
        while let Some(piece) = sift.next() {
            sift.came(server.push(piece));
        }
        sift
    }

    #[test]
    fn one_wrong_row_is_found_and_all_others_get_in() {
        let mut server = Server { wrong: [700].into(), ..Server::default() };
        let done = sifted(1_000, &mut server);
        assert_eq!(done.aside, [(700, "row 700".to_owned())]);
        assert_eq!((done.settled, done.stopped), (1_000, None));
        assert_eq!(server.stored.len(), 999);
        assert!(server.pushes <= 21, "{}", server.pushes);
    }

    #[test]
    fn a_batch_that_is_refused_whole_takes_few_pushes() {
        let mut server = Server { wrong: (0..1_000).collect(), ..Server::default() };
        let done = sifted(1_000, &mut server);
        assert_eq!((done.settled, done.aside.len()), (1_000, 1_000));
        assert!(server.pushes <= 40, "{}", server.pushes);
    }

    #[test]
    fn what_is_too_much_at_once_gets_in_by_pieces() {
        let mut server = Server { most: Some(10), ..Server::default() };
        let done = sifted(1_000, &mut server);
        assert_eq!((done.settled, done.aside.len(), done.too_large), (1_000, 0, true));
        assert_eq!(server.stored.len(), 1_000);

        let mut server = Server { most: Some(0), ..Server::default() };
        assert_eq!(sifted(2, &mut server).aside.len(), 2, "a row that is too much alone");
    }

    #[test]
    fn nothing_to_push_is_no_push() {
        let mut server = Server::default();
        assert_eq!(sifted(0, &mut server).settled, 0);
        assert_eq!(server.pushes, 0);
    }

    proptest! {
        #[test]
        fn whatever_happens_each_row_is_stored_or_aside_or_still_to_do(
            count in 0..60usize, wrong in proptest::collection::btree_set(0..60usize, 0..8), most in 1..80usize,
            pauses_at in proptest::option::of(1..30usize),
        ) {
            let mut server = Server { wrong, most: Some(most), pauses_at, ..Server::default() };
            let done = sifted(count, &mut server);
            let aside: BTreeSet<usize> = done.aside.iter().map(|(row, _)| *row).collect();
            prop_assert_eq!(aside.len(), done.aside.len(), "no row is set aside twice");
            for row in 0..done.settled {
                prop_assert!(server.stored.contains(&row) || aside.contains(&row), "row {}", row);
            }
            prop_assert!(aside.iter().all(|row| *row < done.settled));
            prop_assert!(done.stopped.is_some() || done.settled == count);
        }
    }
}
