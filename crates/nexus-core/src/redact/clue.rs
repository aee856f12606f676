//! Where a text may hold a secret at all: four bytes that every secret's announcement or shape has in it.
//!
//! Almost all of almost every text has no clue, and this is how it is passed over quickly: of every second position
//! three bytes are looked up in three tables, whose bits are the clues. Rare ones share a bit: a place that fits a mix
//! of two is looked at in vain, that is all.

/// Bytes that may stand at one place of a clue.
type Class = &'static [u8];

/// Any byte, and what is not part of a name or goes on as `-user`.
const ANY: Class = b"";
const AFTER_U: Class = b"\0s";
/// Before `-u`.
const BEFORE_U: Class = b"\0-";

/// What starts a run of name bytes, or is in one, in either case for letters that are given in lower case here.
const FOLDED: &[[Class; 4]] = &[
    [b"t", b"o", b"k", b"e"],         // token
    [b"a", b"s", b"s", b"wcp\0"],     // password, passwd, passcode, passphrase, pass
    [b"s", b"e", b"c", b"r"],         // secret
    [b"p", b"i", b"k", b"e"],         // apikey
    [b"_-dn", b"k", b"e", b"y"],      // api_key, access-key, private_key, presharedkey, encryptionkey
    [b"s", b"s", b"k", b"e"],         // accesskey
    [b"t", b"e", b"k", b"e"],         // privatekey
    [b"ru", b"it", b"zh", b"a\"'\\"], // authorization, "auth"
    [b"o", b"o", b"k", b"i"],         // cookie
    [b"m", b"y", b"s", b"q"],         // mysql, MYSQL_PWD
    [b"a", b"r", b"e", b"r"],         // Bearer
    [b"a", b"s", b"i", b"c"],         // Basic
    [BEFORE_U, b"-", b"u", AFTER_U],  // -u, --user
    [b"y", b"-", b"u", b"s"],         // --proxy-user
    [b"p", b"ws", b"dk", b"\0"],      // pwd, psk
    [b"c", b"r", b"e", b"d"],         // credentials
];

const EXACT: &[[Class; 4]] = &[
    [b":", b"/", b"/", ANY],               // ://
    [b"-", b"B", b"E", b"G"],              // -----BEGIN
    [b"e", b"y", b"J", ANY],               // a JWT
    [b"cr", b"ui", b"ra", b"ld"],          // curl, mariadb
    [b"s", b"h", b"p", b"a"],              // sshpass
    [b"g", b"h", b"pousr", b"_"],          // ghp_
    [b"p", b"a", b"t", b"_-"],             // github_pat_, glpat-, dckr_pat_, shpat_
    [b"s$", b"k12567y", b"-_$aby", ANY],   // sk-, sk_live_, $6$, $y$, $2b$
    [b"x", b"oa", b"xp", b"abp"],          // xoxb-, xapp-
    [b"A0123456789", b"KS:", b"IA", b"A"], // AKIA, ASIA, 0:AA
    [b"A", b"I", b"z", b"a"],              // AIza
    [b"thS", b"kfG", b"_.", ANY],          // tk_, hf_, SG.
    [b"t", b"s", b"k", b"e"],              // tskey-
    [b"n", b"p", b"m", b"_"],              // npm_
    [b"nr", b"x ", b"kl", b"_o"],          // nxk_, docker login, podman login
    // glsa_, pypi-, hvs., $argon2, hooks.slack, $apr1, redis-cli, valkey-cli
    [b"lyhgkps", b"spvor-", b"aisn.1c", b"_-.2sl$"],
];

/// Bits for the first three bytes of the clues, and 32 higher for the last three.
struct Tables([[u64; 256]; 3]);

static TABLES: Tables = Tables::new();

impl Tables {
    const fn new() -> Self {
        let mut tables = Self([[0; 256]; 3]);
        let mut clue = 0;
        while clue < FOLDED.len() {
            tables.add(FOLDED[clue], true, clue);
            clue += 1;
        }
        clue = 0;
        while clue < EXACT.len() {
            tables.add(EXACT[clue], false, FOLDED.len() + clue);
            clue += 1;
        }
        tables
    }

    const fn add(&mut self, clue: [Class; 4], folded: bool, bit: usize) {
        assert!(bit < 32);
        let mut place = 0;
        while place < 4 {
            let mut byte = 0;
            while byte < 256 {
                if fits(byte as u8, clue[place], folded) {
                    if place < 3 {
                        self.0[place][byte] |= 1 << bit;
                    }
                    if place > 0 {
                        self.0[place - 1][byte] |= 1 << (32 + bit);
                    }
                }
                byte += 1;
            }
            place += 1;
        }
    }

    fn three(&self, a: u8, b: u8, c: u8) -> u64 {
        self.0[0][usize::from(a)] & self.0[1][usize::from(b)] & self.0[2][usize::from(c)]
    }
}

/// A NUL in a class stands for all bytes that cannot be part of a name.
const fn fits(byte: u8, class: Class, folded: bool) -> bool {
    let mut i = 0;
    while i < class.len() {
        let same = if folded { byte.eq_ignore_ascii_case(&class[i]) } else { byte == class[i] };
        if same || (class[i] == 0 && !super::scan::is_name(byte)) {
            return true;
        }
        i += 1;
    }
    class.is_empty()
}

/// Where the next clue starts, or one byte before the text that follows it; the length if there is none.
///
/// A clue may start one byte before `from`: there `-u` has what comes before it.
pub(super) fn next(bytes: &[u8], from: usize) -> usize {
    if from == 0 && matches!(bytes, [b'-', b'u' | b'U', ..]) {
        return 0;
    }
    let mut at = from.saturating_sub(1);
    // Two positions to a step, sixteen to a turn.
    while let Some(part) = bytes.get(at..at + 18).and_then(|part| <&[u8; 18]>::try_from(part).ok()) {
        let mut any = 0;
        for i in 0..8 {
            any |= TABLES.three(part[2 * i], part[2 * i + 1], part[2 * i + 2]);
        }
        if any != 0
            && let Some(found) = (0..8).find_map(|i| at_either(bytes, at + 2 * i))
        {
            return found;
        }
        at += 16;
    }
    (at.saturating_sub(1)..bytes.len()).find(|at| is_clue(bytes, *at)).unwrap_or(bytes.len())
}

/// A clue that starts here, or one byte before.
fn at_either(bytes: &[u8], at: usize) -> Option<usize> {
    at.checked_sub(1).filter(|before| is_clue(bytes, *before)).or_else(|| is_clue(bytes, at).then_some(at))
}

/// All four bytes fit. Beyond the end of the text stands what is no part of a name.
fn is_clue(bytes: &[u8], at: usize) -> bool {
    let byte = |i: usize| bytes.get(at + i).copied().unwrap_or(0);
    let first = TABLES.three(byte(0), byte(1), byte(2));
    first as u32 != 0 && first as u32 & (TABLES.three(byte(1), byte(2), byte(3)) >> 32) as u32 != 0
}
