//! Patterns over paths, matched name by name: `*` within a name, `**` for any number of names.

use std::path::{Component, Path};

/// A pattern. It covers what it matches and everything below that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// From the root; otherwise from any folder.
    anchored: bool,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Deep,
    Like(String),
    Exactly(String),
}

impl Pattern {
    /// `/srv/**/token` and `~/x` from the root, `*.pem` and `.aws/credentials` anywhere. None when nothing is in it.
    pub fn parse(text: &str, home: Option<&Path>) -> Option<Self> {
        if let (Some(rest), Some(home)) = (text.strip_prefix("~/"), home) {
            let mut pattern = Self::exactly(home);
            pattern.parts.extend(parse_parts(rest));
            return Some(pattern);
        }
        let parts: Vec<Part> = parse_parts(text).collect();
        let says_something = parts.iter().any(|part| *part != Part::Deep);
        says_something.then(|| Self { anchored: text.starts_with('/'), parts })
    }

    /// This path, whatever is in its name.
    pub fn exactly(path: &Path) -> Self {
        Self { anchored: true, parts: names(path).into_iter().map(Part::Exactly).collect() }
    }

    /// The path it names, if it names one.
    pub fn literal_path(text: &str) -> Option<&Path> {
        (text.starts_with('/') && !text.contains(['*', '?'])).then(|| Path::new(text))
    }

    /// `names` as [`names`] gives them.
    pub fn covers(&self, names: &[String]) -> bool {
        let starts = if self.anchored { 0..1 } else { 0..names.len() };
        starts.into_iter().any(|start| begins(&self.parts, &names[start.min(names.len())..]))
    }
}

fn parse_parts(text: &str) -> impl Iterator<Item = Part> {
    text.split('/').filter(|name| !matches!(*name, "" | ".")).map(|name| match name {
        "**" => Part::Deep,
        name => Part::Like(name.to_lowercase()),
    })
}

/// The names in a path, in small letters: a file system may not care about case, and a secret's name is
/// one in capitals too.
pub fn names(path: &Path) -> Vec<String> {
    let normal = |part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
        _ => None,
    };
    path.components().filter_map(normal).collect()
}

fn begins(parts: &[Part], names: &[String]) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, _) => true,
        (Some((Part::Deep, rest)), _) => (0..=names.len()).any(|skip| begins(rest, &names[skip..])),
        (Some((Part::Like(glob), rest)), Some((name, below))) => like(glob, name) && begins(rest, below),
        (Some((Part::Exactly(same), rest)), Some((name, below))) => same == name && begins(rest, below),
        (Some((Part::Like(_) | Part::Exactly(_), _)), None) => false,
    }
}

/// The last star is the only one worth going back to, so it is quick for any pattern.
fn like(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut g, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match (glob.get(g), star) {
            (Some('*'), _) => {
                star = Some((g, n));
                g += 1;
            }
            (Some(c), _) if *c == '?' || *c == name[n] => {
                g += 1;
                n += 1;
            }
            (_, Some((at, eaten))) => {
                star = Some((at, eaten + 1));
                g = at + 1;
                n = eaten + 1;
            }
            (_, None) => return false,
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_paths_and_what_is_below() {
        check("*.pem", "/etc/ssl/site.PEM", true);
        check("*.pem", "/etc/ssl/pem", false);
        check(".aws/credentials", "/root/.aws/credentials", true);
        check(".aws/credentials", "/root/aws/credentials", false);
        check(".gnupg", "/root/.gnupg/private-keys-v1.d/x", true);
        check("/srv", "/srv/a/b", true);
        check("/srv", "/mnt/srv", false);
        check("/srv/**/token", "/srv/a/b/token", true);
        check("/srv/**/token", "/srv/token", true);
        check("/srv/*/token", "/srv/a/b/token", false);
        check("~/vault", "/home/me/vault/x", true);
        check("proc/*/environ", "/host/proc/1/environ", true);
        check("a?c*e", "/abcde", true);
        check("/", "/x", false);
        check("**", "/x", false);
        check("", "/x", false);

        #[track_caller]
        fn check(pattern: &str, path: &str, expected: bool) {
            let covers = Pattern::parse(pattern, Some(Path::new("/home/me")))
                .is_some_and(|pattern| pattern.covers(&names(Path::new(path))));
            assert_eq!(covers, expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn a_star_in_a_real_path_is_only_a_star() {
        let pattern = Pattern::exactly(Path::new("/data*"));
        assert!(pattern.covers(&names(Path::new("/data*/key"))));
        assert!(!pattern.covers(&names(Path::new("/database"))));
    }
}
