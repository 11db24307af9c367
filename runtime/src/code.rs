//! the bytes of a shared object  =>  callable kernels, without a file on disk

use crate::program::Kernel;
use prost::Message;
use sardonyx_base::cpu::{Arch, Level};
use sardonyx_base::plan::messages::{self, Plan};
use sardonyx_base::plan::{KERNELS_SYMBOL, KernelFn};
use sardonyx_base::{Error, Result};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

/// A loaded shared object.
pub struct Library {
    handle: *mut libc::c_void,
    /// The file stays open as long as the library is loaded: the loader identifies libraries by their path,
    /// `/proc/self/fd/N`, and would mistake a second library with the same descriptor number N for the first one.
    _file: File,
}

// SAFETY: the handle is only used to look up symbols, which is thread-safe, and to close it, once.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    pub fn load(code: &[u8], arch: &Arch) -> Result<Library> {
        // The file must be a 64-bit little-endian shared object; the loader's message for any other file would be less
        // clear.
        let kind = [[3, 0], arch.elf_machine.to_le_bytes()].concat();
        if code.get(..6) != Some(b"\x7fELF\x02\x01") || code.get(16..20) != Some(&kind) {
            return Err(Error::user("E0401", format!("the code is not a shared object for {}", arch.name)));
        }
        if !is_whole(code) {
            return Err(Error::user("E0401", "the code is cut: its segments reach beyond its end"));
        }
        let fail = |e: std::io::Error| Error::user("E0304", format!("cannot place the code in memory: {e}"));
        // SAFETY: a constant, zero-terminated name.
        let fd = unsafe { libc::memfd_create(c"sardonyx".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(fail(std::io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and has no other owner.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.write_all(code).map_err(fail)?;
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let path = path.map_err(|e| Error::defect(e.to_string()))?;
        // SAFETY: the path is zero-terminated. Loading runs the object's initializers: the artifact is native code
        // and trusted as such, as the documentation says.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(Error::user("E0401", format!("the code cannot be loaded: {}", loader_error())));
        }
        Ok(Library { handle, _file: file })
    }

    fn address(&self, name: &str) -> Option<*mut libc::c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open and the name zero-terminated.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    fn symbol(&self, name: &str) -> Option<KernelFn> {
        // SAFETY: a kernel symbol is a function of the kernel ABI; the compiler and this crate share its definition.
        Some(unsafe { std::mem::transmute::<*mut libc::c_void, KernelFn>(self.address(name)?) })
    }

    /// Refuses a plan whose kernels differ from those that the code declares: the code stores the number of a kernel's
    /// buffers, which buffers the kernel writes, and its requirements on a launch, and the plan must repeat them.
    /// Errors: E0401.
    pub fn check_declared(&self, kernels: &[messages::Kernel]) -> Result<()> {
        let Some(table) = self.address(KERNELS_SYMBOL) else { return Ok(()) };
        // SAFETY: the symbol is a length followed by that many bytes (`plan::KERNELS_SYMBOL`); the code is trusted.
        let bytes = unsafe {
            let length = u64::from_le(table.cast::<u64>().read_unaligned());
            std::slice::from_raw_parts(table.cast::<u8>().add(8), length as usize)
        };
        compare_declared(bytes, kernels)
    }

    /// Returns the kernels' functions in the plan's order: for each, the best level up to `level` that the code has.
    pub fn kernels(&self, kernels: &[Kernel], level: Level) -> Result<Vec<KernelFn>> {
        let find = |kernel: &Kernel| {
            let name = |level: Level| format!("{}_{}", kernel.symbol, level.name());
            let found = level.included().find_map(|level| self.symbol(&name(level)));
            found.ok_or_else(|| Error::user("E0401", format!("the code lacks the kernel `{}`", name(level))))
        };
        kernels.iter().map(find).collect()
    }
}

/// Compares the kernels of a plan with those that the code declares in an encoded [`Plan`]. Errors: E0401.
pub fn compare_declared(declared: &[u8], kernels: &[messages::Kernel]) -> Result<()> {
    let wrong = |what: String| Error::user("E0401", what).help("compile the model again");
    let declared = Plan::decode(declared).map_err(|e| wrong(format!("the code's own kernels do not decode: {e}")))?;
    if declared.kernels.len() != kernels.len() {
        let (here, there) = (kernels.len(), declared.kernels.len());
        return Err(wrong(format!("the plan has {here} kernels, the code {there}")));
    }
    match kernels.iter().zip(&declared.kernels).position(|(a, b)| a != b) {
        Some(i) => Err(wrong(format!("kernel {i} `{}` of the plan is not as the code declares it", kernels[i].symbol))),
        None => Ok(()),
    }
}

/// Whether all segments end within the file: the loader does not check this, and touching a mapping beyond its file is
/// fatal.
fn is_whole(elf: &[u8]) -> bool {
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = elf.get(at..at.checked_add(bytes)?)?;
        usize::try_from(field.iter().rev().fold(0u64, |n, b| n << 8 | *b as u64)).ok()
    };
    let segment_ends_inside = |at: usize| -> Option<bool> {
        let end = number(at.checked_add(8)?, 8)?.checked_add(number(at.checked_add(32)?, 8)?)?;
        Some(end <= elf.len())
    };
    let all = || -> Option<bool> {
        let (first, size, n) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..n).map(|i| segment_ends_inside(first.checked_add(i * size)?)).try_fold(true, |all, one| Some(all && one?))
    };
    all().unwrap_or(false)
}

fn loader_error() -> String {
    // SAFETY: dlerror returns null or a string that lives until this thread's next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: closed once; all users of its kernels also hold the library (see `Model`).
        unsafe { libc::dlclose(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::cpu::X86_64;

    #[test]
    fn what_is_no_shared_object_is_refused() {
        let mut elf = vec![0u8; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[16..20].copy_from_slice(&[3, 0, 62, 0]);
        let mut cut = elf.clone();
        cut[32] = 8; // One program header, which ends beyond the 64 bytes.
        cut[54] = 56;
        cut[56] = 1;
        cut[8 + 32] = 100;
        for code in [&b""[..], b"MZ", &elf, &cut] {
            assert_eq!(Library::load(code, &X86_64).err().unwrap().code, "E0401");
        }
    }
}
