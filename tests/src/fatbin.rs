//! a library that contains CUDA code  =>  the texts of its PTX modules, decompressed

/// The first bytes of every fat binary.
const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
/// The kind of an entry that holds PTX; entries of other kinds, such as machine code, are skipped.
const KIND_PTX: u16 = 1;
/// Flag of an entry that is compressed as an LZ4 block.
const LZ4: u64 = 1 << 13;

/// Returns the text of every PTX module, in the order of the file.
pub fn modules(library: &[u8]) -> Vec<String> {
    let mut texts = vec![];
    let mut at = 0;
    while let Some(found) = library[at..].windows(4).position(|w| w == MAGIC) {
        at += found;
        let (header, size) = (number(library, at + 6, 2) as usize, number(library, at + 8, 8) as usize);
        if let Some(entries) = library.get(at + header..at + header + size) {
            texts.extend(entries_of(entries));
        }
        at += 4;
    }
    texts
}

fn entries_of(mut rest: &[u8]) -> Vec<String> {
    let mut texts = vec![];
    while rest.len() >= 64 {
        let (header, padded) = (number(rest, 4, 4) as usize, number(rest, 8, 8) as usize);
        if number(rest, 0, 2) == u64::from(KIND_PTX) {
            let (stored, whole) = (number(rest, 16, 4) as usize, number(rest, 56, 8) as usize);
            let text = match number(rest, 40, 8) & LZ4 {
                0 => rest[header..header + padded].to_vec(),
                _ => lz4(&rest[header..header + stored], whole),
            };
            let text = String::from_utf8(text).expect("PTX is text");
            texts.push(text.trim_end_matches('\0').to_string());
        }
        rest = &rest[(header + padded).min(rest.len())..];
    }
    texts
}

/// Reads a little-endian number of `n` bytes at `at`.
fn number(bytes: &[u8], at: usize, n: usize) -> u64 {
    bytes[at..at + n].iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
}

/// Decompresses an LZ4 block to `whole` bytes. The block is a series of sequences, each of a token, literals, and the
/// offset and length of a match; the last sequence has no match.
fn lz4(block: &[u8], whole: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(whole);
    let mut bytes = block.iter().copied();
    while let Some(token) = bytes.next() {
        let literals = length(usize::from(token >> 4), &mut bytes);
        out.extend(bytes.by_ref().take(literals));
        let Some(low) = bytes.next() else { break };
        let back = usize::from(low) | usize::from(bytes.next().expect("a distance has two bytes")) << 8;
        let copied = length(usize::from(token & 15), &mut bytes) + 4;
        // The copied range may overlap its destination.
        for _ in 0..copied {
            out.push(out[out.len() - back]);
        }
    }
    assert_eq!(out.len(), whole, "an LZ4 block of another length than its header states");
    out
}

fn length(nibble: usize, bytes: &mut impl Iterator<Item = u8>) -> usize {
    let mut n = nibble;
    if nibble == 15 {
        for more in bytes {
            n += usize::from(more);
            if more < 255 {
                break;
            }
        }
    }
    n
}

#[test]
fn an_lz4_block_repeats_what_it_has_written() {
    // "abc", then nine bytes copied from three bytes back, then "x" as the last literal.
    assert_eq!(lz4(&[0x35, b'a', b'b', b'c', 3, 0, 0x10, b'x'], 13), b"abcabcabcabcx");
    // Lengths of 15 and more continue in further bytes.
    let long: Vec<u8> = [&[0xf0, 5][..], &[b'y'; 20]].concat();
    assert_eq!(lz4(&long, 20), [b'y'; 20]);
}

#[test]
fn modules_are_found_between_other_bytes() {
    let text = b"// t\n\0\0\0";
    let mut entry = vec![0; 64];
    entry[0] = 1;
    entry[4] = 64;
    entry[8] = 8;
    let mut library = b"ELF and more".to_vec();
    library.extend(MAGIC);
    library.extend([1, 0, 16, 0]);
    library.extend(72_u64.to_le_bytes());
    library.extend(&entry);
    library.extend(text);
    library.extend(b"the end");
    assert_eq!(modules(&library), ["// t\n"]);
}
