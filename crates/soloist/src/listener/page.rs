//! `/`: one page for people.

use std::sync::LazyLock;

use crate::web_page::WebPage;

pub(super) static PAGE: LazyLock<WebPage> =
    LazyLock::new(|| WebPage::new(include_str!("page.html")));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_one_style_and_one_script_and_neither_is_elsewhere() {
        crate::web_page::assert_self_contained(PAGE.text);
    }
}
