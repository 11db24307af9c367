//! pieces of a text  =>  the text up to the first stop string

/// Holds back text that may be the beginning of a stop string.
pub struct Stops {
    stops: Vec<String>,
    held: String,
}

/// The text that can be shown now, and whether a stop string has ended the text.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    pub text: String,
    pub is_over: bool,
}

impl Stops {
    pub fn new(stops: Vec<String>) -> Stops {
        Stops { stops, held: String::new() }
    }

    pub fn push(&mut self, piece: &str) -> Shown {
        self.held += piece;
        let first = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = first {
            self.held.truncate(at);
            return Shown { text: std::mem::take(&mut self.held), is_over: true };
        }
        let kept = self.stops.iter().map(|stop| begun(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        Shown { text: std::mem::replace(&mut self.held, rest), is_over: false }
    }

    /// Returns the text that is still held back after the last piece.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Returns the length in bytes of the longest proper prefix of `stop` that `text` ends with.
fn begun(text: &str, stop: &str) -> usize {
    let lengths = stop.char_indices().map(|(at, _)| at).rev();
    lengths.into_iter().find(|n| text.ends_with(&stop[..*n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, is_over: bool) -> Shown {
        Shown { text: text.into(), is_over }
    }

    #[test]
    fn a_string_that_comes_in_pieces_ends_the_text() {
        let mut stops = Stops::new(vec!["\n\n".into(), "END".into()]);
        assert_eq!(stops.push("a\nb"), shown("a\nb", false));
        assert_eq!(stops.push("c\n"), shown("c", false));
        assert_eq!(stops.push("dE"), shown("\nd", false));
        assert_eq!(stops.push("N"), shown("", false));
        assert_eq!(stops.push("E"), shown("EN", false));
        assert_eq!(stops.push("ND and more"), shown("", true));
        assert_eq!(stops.rest(), "");
    }

    #[test]
    fn what_is_held_back_is_shown_at_the_end() {
        let mut stops = Stops::new(vec!["äö".into()]);
        assert_eq!(stops.push("xä"), shown("x", false));
        assert_eq!(stops.rest(), "ä");
        assert_eq!(Stops::new(vec![]).push("x"), shown("x", false));
    }
}
