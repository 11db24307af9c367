//! Relocatable objects  =>  one shared object without imports
//!
//! The kernels' objects hold code and constants, whose references to each other are all PC-relative. Their sections are
//! concatenated into two segments, one read-only and one executable, and the relocations are resolved, so that nothing
//! is left for the loader to relocate.

use object::elf;
use object::read::elf::ElfFile64;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, Writer};
use object::{
    Endianness, LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags,
    SymbolFlags, SymbolIndex,
};
use sardonyx_base::{Error, Result};
use std::collections::BTreeMap;

/// Page size of the loader. Each segment begins on a new page in memory, but directly after the previous one in the
/// file.
const PAGE: u64 = 4096;

const SONAME: &[u8] = b"kernels.so";

/// An object. For each section that is loaded, `pieces` maps the section's index to its index in the list of pieces.
struct Input<'d> {
    name: &'d str,
    file: ElfFile64<'d, LittleEndian>,
    pieces: BTreeMap<usize, usize>,
}

/// A section that is loaded.
struct Piece<'d> {
    data: &'d [u8],
    align: u64,
    is_code: bool,
    /// Load address, once it is known.
    address: u64,
}

/// Symbol that other objects and the loader may look up.
struct Export {
    piece: usize,
    value: u64,
    size: u64,
    info: u8,
}

/// Links the objects; the result depends on their contents and order only. Errors: E0901 for imports, writable data and
/// relocations that are not PC-relative, which no kernel's object has.
pub fn shared_object(objects: &[(&str, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut pieces = vec![];
    let inputs = objects.iter().map(|(name, bytes)| read(name, bytes, &mut pieces)).collect::<Result<Vec<_>>>()?;
    let exports = exports(&inputs)?;
    write(&inputs, &mut pieces, &exports)
}

fn defect(object: &str, what: impl std::fmt::Display) -> Box<Error> {
    Error::defect(format!("linking the kernels failed: the object `{object}` {what}"))
}

fn read<'d>(name: &'d str, bytes: &'d [u8], pieces: &mut Vec<Piece<'d>>) -> Result<Input<'d>> {
    let unreadable = |e: object::read::Error| defect(name, format!("cannot be read: {e}"));
    let file = ElfFile64::<LittleEndian>::parse(bytes).map_err(unreadable)?;
    let mut numbers = BTreeMap::new();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
        if sh_flags & u64::from(elf::SHF_ALLOC) == 0 || section.size() == 0 {
            continue;
        }
        let data = section.data().map_err(unreadable)?;
        let is_written = sh_flags & u64::from(elf::SHF_WRITE | elf::SHF_TLS) != 0;
        if is_written || data.len() as u64 != section.size() || section.align() > PAGE {
            let section = section.name().map_err(unreadable)?;
            return Err(defect(name, format!("has the section `{section}`, which is neither code nor constants")));
        }
        numbers.insert(section.index().0, pieces.len());
        let is_code = sh_flags & u64::from(elf::SHF_EXECINSTR) != 0;
        pieces.push(Piece { data, align: section.align().max(1), is_code, address: 0 });
    }
    Ok(Input { name, file, pieces: numbers })
}

/// Global symbols by name.
fn exports<'d>(inputs: &[Input<'d>]) -> Result<BTreeMap<&'d [u8], Export>> {
    let mut exports = BTreeMap::new();
    for input in inputs {
        for symbol in input.file.symbols().filter(|symbol| symbol.is_global() && symbol.is_definition()) {
            let name = symbol.name_bytes().map_err(|e| defect(input.name, e))?;
            let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { continue };
            let (piece, value) = input.place(symbol.index(), &BTreeMap::new())?;
            if exports.insert(name, Export { piece, value, size: symbol.size(), info: st_info }).is_some() {
                return Err(defect(input.name, format!("defines `{}` again", name.escape_ascii())));
            }
        }
    }
    Ok(exports)
}

impl Input<'_> {
    /// Returns the piece in which a symbol is defined, and its offset there.
    fn place(&self, symbol: SymbolIndex, exports: &BTreeMap<&[u8], Export>) -> Result<(usize, u64)> {
        let wrong = |e: object::read::Error| defect(self.name, e);
        let symbol = self.file.symbol_by_index(symbol).map_err(wrong)?;
        let name = symbol.name_bytes().map_err(wrong)?;
        let missing = || defect(self.name, format!("refers to `{}`, which is nowhere", name.escape_ascii()));
        match symbol.section_index() {
            Some(section) => Ok((*self.pieces.get(&section.0).ok_or_else(missing)?, symbol.address())),
            None => exports.get(name).map(|export| (export.piece, export.value)).ok_or_else(missing),
        }
    }

    /// Resolves the PC-relative relocations in this object's sections; all pieces must have their addresses.
    fn relocate(&self, pieces: &[Piece], exports: &BTreeMap<&[u8], Export>, data: &mut [Vec<u8>]) -> Result<()> {
        for section in self.file.sections() {
            let Some(&own) = self.pieces.get(&section.index().0) else { continue };
            for (offset, relocation) in section.relocations() {
                let (RelocationFlags::Elf { r_type }, RelocationTarget::Symbol(symbol)) =
                    (relocation.flags(), relocation.target())
                else {
                    return Err(defect(self.name, "has a relocation without a symbol"));
                };
                let (piece, value) = self.place(symbol, exports)?;
                let to = pieces[piece].address.wrapping_add(value).wrapping_add_signed(relocation.addend());
                let distance = to.wrapping_sub(pieces[own].address.wrapping_add(offset)) as i64;
                let (all, fits) = (distance.to_le_bytes(), i32::try_from(distance).is_ok());
                let bytes = match r_type {
                    elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 if fits => &all[..4],
                    elf::R_X86_64_PC64 => &all[..],
                    _ => {
                        let what = format!("has a relocation of type {r_type} over {distance} bytes");
                        return Err(defect(self.name, what));
                    }
                };
                let at =
                    usize::try_from(offset).ok().and_then(|at| data[own].get_mut(at..at.checked_add(bytes.len())?));
                at.ok_or_else(|| defect(self.name, "has a relocation outside its section"))?.copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}

/// A range of bytes in the file of the shared object.
#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    bytes: u64,
}

/// Reserves file space for the pieces that are code (or those that are not) and assigns their addresses, `segment`
/// pages after their file offsets.
fn lay(writer: &mut Writer, pieces: &mut [Piece], is_code: bool, segment: u64) -> Range {
    let align = pieces.iter().filter(|piece| piece.is_code == is_code).map(|piece| piece.align).max().unwrap_or(1);
    let offset = writer.reserve(0, align as usize) as u64;
    for piece in pieces.iter_mut().filter(|piece| piece.is_code == is_code) {
        piece.address = writer.reserve(piece.data.len(), piece.align as usize) as u64 + segment * PAGE;
    }
    Range { offset, bytes: writer.reserved_len() as u64 - offset }
}

fn write(inputs: &[Input], pieces: &mut [Piece], exports: &BTreeMap<&[u8], Export>) -> Result<Vec<u8>> {
    // Symbols are sorted by their hash bucket.
    let (n, n_buckets) = (exports.len() as u32, (exports.len() as u32 / 4).max(1));
    let n_blooms = (n * 12 / 64).max(1).next_power_of_two();
    let mut symbols: Vec<(&[u8], &Export)> = exports.iter().map(|(name, export)| (*name, export)).collect();
    symbols.sort_by_key(|(name, _)| elf::gnu_hash(name) % n_buckets);

    let mut bytes = vec![];
    let mut writer = Writer::new(Endianness::Little, true, &mut bytes);
    writer.reserve_file_header();
    writer.reserve_program_headers(6);
    writer.reserve_null_section_index();
    writer.reserve_gnu_hash_section_index();
    writer.reserve_dynsym_section_index();
    writer.reserve_dynstr_section_index();
    let section_names = [b".rodata".as_slice(), b".text"].map(|name| writer.add_section_name(name));
    let section_indices = [(); 2].map(|()| writer.reserve_section_index());
    writer.reserve_dynamic_section_index();
    writer.reserve_shstrtab_section_index();
    let soname = writer.add_dynamic_string(SONAME);
    writer.reserve_null_dynamic_symbol_index();
    let names: Vec<_> = symbols.iter().map(|(name, _)| writer.add_dynamic_string(name)).collect();
    names.iter().for_each(|_| {
        writer.reserve_dynamic_symbol_index();
    });

    let hash = writer.reserve_gnu_hash(n_blooms, n_buckets, n) as u64;
    let dynsym = writer.reserve_dynsym() as u64;
    let dynstr = writer.reserve_dynstr() as u64;
    let constants = lay(&mut writer, pieces, false, 0);
    let code = lay(&mut writer, pieces, true, 1);
    let entries = 9;
    let dynamic = writer.reserve_dynamic(entries) as u64;
    let dynamic = Range { offset: dynamic, bytes: writer.reserved_len() as u64 - dynamic };
    writer.reserve_shstrtab();
    writer.reserve_section_headers();

    let mut data: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.data.to_vec()).collect();
    inputs.iter().try_for_each(|input| input.relocate(pieces, exports, &mut data))?;

    let unwritable = |e: object::write::Error| Error::defect(format!("the kernels' object cannot be written: {e}"));
    let (os_abi, e_type, e_machine) = (elf::ELFOSABI_NONE, elf::ET_DYN, elf::EM_X86_64);
    writer
        .write_file_header(&FileHeader { os_abi, abi_version: 0, e_type, e_machine, e_entry: 0, e_flags: 0 })
        .map_err(unwritable)?;
    let mut segment = |p_type: u32, p_flags: u32, range: Range, page: u64, p_memsz: u64, p_align: u64| {
        let (p_offset, p_filesz, p_vaddr) = (range.offset, range.bytes, range.offset + page * PAGE);
        writer.write_program_header(&ProgramHeader {
            p_type,
            p_flags,
            p_offset,
            p_vaddr,
            p_paddr: p_vaddr,
            p_filesz,
            p_memsz,
            p_align,
        });
    };
    let head = Range { offset: 0, bytes: constants.offset + constants.bytes };
    // The loader makes the dynamic section read-only after relocation, which works on whole pages only.
    let whole = (dynamic.offset + dynamic.bytes).next_multiple_of(PAGE) - dynamic.offset;
    segment(elf::PT_LOAD, elf::PF_R, head, 0, head.bytes, PAGE);
    let loaded = if code.bytes == 0 { elf::PT_NULL } else { elf::PT_LOAD };
    segment(loaded, elf::PF_R | elf::PF_X, code, 1, code.bytes, PAGE);
    segment(elf::PT_LOAD, elf::PF_R | elf::PF_W, dynamic, 2, whole, PAGE);
    segment(elf::PT_DYNAMIC, elf::PF_R | elf::PF_W, dynamic, 2, dynamic.bytes, 8);
    segment(elf::PT_GNU_RELRO, elf::PF_R, dynamic, 2, whole, 1);
    segment(elf::PT_GNU_STACK, elf::PF_R | elf::PF_W, Range { offset: 0, bytes: 0 }, 0, 0, 0);

    writer.write_gnu_hash(1, 26, n_blooms, n_buckets, n, |i| elf::gnu_hash(symbols[i as usize].0));
    writer.write_null_dynamic_symbol();
    for ((_, export), name) in symbols.iter().zip(names) {
        let piece = &pieces[export.piece];
        writer.write_dynamic_symbol(&Sym {
            name: Some(name),
            section: Some(section_indices[usize::from(piece.is_code)]),
            st_info: export.info,
            st_other: elf::STV_DEFAULT,
            st_shndx: 0,
            st_value: piece.address + export.value,
            st_size: export.size,
        });
    }
    writer.write_dynstr();
    for is_code in [false, true] {
        for (piece, data) in pieces.iter().zip(&data).filter(|(piece, _)| piece.is_code == is_code) {
            writer.pad_until((piece.address - u64::from(is_code) * PAGE) as usize);
            writer.write(data);
        }
    }
    writer.write_align_dynamic();
    writer.write_dynamic_string(elf::DT_SONAME, soname);
    let flags = [(elf::DT_FLAGS, u64::from(elf::DF_BIND_NOW)), (elf::DT_FLAGS_1, u64::from(elf::DF_1_NOW))];
    let tables = [(elf::DT_GNU_HASH, hash), (elf::DT_SYMTAB, dynsym), (elf::DT_SYMENT, 24), (elf::DT_STRTAB, dynstr)];
    let size = [(elf::DT_STRSZ, writer.dynstr_len() as u64), (elf::DT_NULL, 0)];
    flags.iter().chain(&tables).chain(&size).for_each(|(tag, value)| writer.write_dynamic(*tag, *value));
    writer.write_shstrtab();

    writer.write_null_section_header();
    writer.write_gnu_hash_section_header(hash);
    writer.write_dynsym_section_header(dynsym, 1);
    writer.write_dynstr_section_header(dynstr);
    for (is_code, (name, range)) in [false, true].into_iter().zip(section_names.into_iter().zip([constants, code])) {
        let executed = if is_code { elf::SHF_EXECINSTR } else { 0 };
        writer.write_section_header(&SectionHeader {
            name: Some(name),
            sh_type: elf::SHT_PROGBITS,
            sh_flags: u64::from(elf::SHF_ALLOC | executed),
            sh_addr: range.offset + u64::from(is_code) * PAGE,
            sh_offset: range.offset,
            sh_size: range.bytes,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: 64,
            sh_entsize: 0,
        });
    }
    writer.write_dynamic_section_header(dynamic.offset + 2 * PAGE);
    writer.write_shstrtab_section_header();
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::lower;
    use super::*;
    use sardonyx_base::cpu::Level;

    fn object(text: &str) -> Vec<u8> {
        lower::object(&lower::context(), text, Level::common().next().unwrap()).unwrap()
    }

    fn link_error(objects: &[(&str, &str)]) -> String {
        let objects: Vec<_> = objects.iter().map(|(name, text)| (*name, object(text))).collect();
        shared_object(&objects).unwrap_err().message
    }

    const CALLS: &str = "llvm.func @other() -> i64\nllvm.func @calls() -> i64 { %0 = llvm.call @other() : () -> i64 llvm.return %0 : i64 }";
    const OTHER: &str = "llvm.func @other() -> i64 { %0 = llvm.mlir.constant(7) : i64 llvm.return %0 : i64 }";

    #[test]
    fn objects_see_each_other_and_the_loader_sees_both() {
        let bytes = shared_object(&[("a", object(CALLS)), ("b", object(OTHER))]).unwrap();
        let file = ElfFile64::<LittleEndian>::parse(&bytes[..]).unwrap();
        let names: Vec<_> = file.dynamic_symbols().map(|symbol| symbol.name().unwrap().to_string()).collect();
        assert!(
            names.len() == 2 && ["calls", "other"].iter().all(|name| names.contains(&name.to_string())),
            "{names:?}"
        );
        assert!(file.dynamic_relocations().is_none_or(|mut relocations| relocations.next().is_none()));
    }

    #[test]
    fn imports_second_definitions_and_data_are_refused() {
        assert!(link_error(&[("a", CALLS)]).ends_with("the object `a` refers to `other`, which is nowhere"));
        assert!(link_error(&[("a", OTHER), ("b", OTHER)]).ends_with("the object `b` defines `other` again"));
        let data = "llvm.mlir.global external @data(7 : i64) : i64";
        assert!(link_error(&[("a", data)]).ends_with("has the section `.data`, which is neither code nor constants"));
        assert!(shared_object(&[("a", b"no object".to_vec())]).unwrap_err().message.contains("`a` cannot be read"));
    }

    #[test]
    fn an_address_is_no_distance() {
        let table = "llvm.func @f() { llvm.return }\nllvm.mlir.global external constant @table() : !llvm.ptr { %0 = llvm.mlir.addressof @f : !llvm.ptr llvm.return %0 : !llvm.ptr }";
        let said = link_error(&[("a", table)]);
        assert!(
            said.contains("has the section `.data.rel.ro`") || said.contains("has a relocation of type 1"),
            "{said}"
        );
    }
}
