//! What a terminal can show.

use std::env;
use std::io::IsTerminal;

/// One that can move its cursor: not a file or a pipe, nor what says of itself that it is dumb.
pub(crate) fn draws(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && env::var_os("TERM").is_none_or(|kind| kind != "dumb")
}

/// <https://no-color.org>
pub(crate) fn shows_colours(stream: &impl IsTerminal) -> bool {
    draws(stream) && env::var_os("NO_COLOR").is_none_or(|wish| wish.is_empty())
}

/// Where nothing is said of an encoding, it is UTF-8.
pub(crate) fn shows_unicode() -> bool {
    is_unicode(|name| env::var(name).ok())
}

fn is_unicode(variable: impl Fn(&str) -> Option<String>) -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().map(variable);
    let locale = said.flatten().find(|locale| !locale.is_empty());
    locale.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_locale_that_is_set_tells_the_encoding() {
        let of = |variables: &[(&str, &str)]| {
            is_unicode(|name| {
                let found = variables.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(of(&[]));
        assert!(of(&[("LANG", "ja_JP.UTF-8")]));
        assert!(of(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("LANG", "C")]));
        assert!(!of(&[("LANG", "C")]));
        assert!(!of(&[("LC_ALL", "ja_JP.eucJP"), ("LANG", "ja_JP.UTF-8")]));
    }
}
