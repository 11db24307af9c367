//! the MPI library that there is: found, loaded, with its functions and constants

use sardonyx_base::{Error, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// A path that is loaded instead of the libraries that are known.
const LIBRARY: &str = "SARDONYX_MPI";

/// What launchers set, and the libraries that ranks started by them load.
static LAUNCHERS: &[(&str, &[&str])] = &[
    ("OMPI_COMM_WORLD_SIZE", &["libmpi.so.40", "libmpi_abi.so.1"]),
    ("PMI_SIZE", &["libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.1"]),
    ("SLURM_STEP_NUM_TASKS", &["libmpi_abi.so.1", "libmpi.so.40", "libmpi.so.12", "libmpich.so.12"]),
];

/// Handles are numbers or addresses; both are passed as an address is.
pub type Handle = usize;

/// The constants of a library.
pub struct Abi {
    pub world: Handle,
    pub byte: Handle,
    pub float: Handle,
    pub sum: Handle,
    pub status_ignore: usize,
    /// Calls from several threads, one at a time.
    pub serialized: c_int,
}

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($arg:ty),*);)*) => {
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> c_int,)*
        }

        impl Functions {
            pub fn of(library: *mut c_void) -> std::result::Result<Functions, &'static str> {
                Ok(Functions {
                    $($name: {
                        let found = symbol(library, concat!($symbol, "\0")).ok_or($symbol)?;
                        // SAFETY: the function of this name has these parameters in every MPI.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> c_int>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    init_thread: "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    comm_rank: "MPI_Comm_rank" (Handle, *mut c_int);
    comm_size: "MPI_Comm_size" (Handle, *mut c_int);
    comm_dup: "MPI_Comm_dup" (Handle, *mut Handle);
    isend: "MPI_Isend" (*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    irecv: "MPI_Irecv" (*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    test: "MPI_Test" (*mut Handle, *mut c_int, usize);
    cancel: "MPI_Cancel" (*mut Handle);
    iprobe: "MPI_Iprobe" (c_int, c_int, Handle, *mut c_int, *mut c_void);
    get_count: "MPI_Get_count" (*const c_void, Handle, *mut c_int);
    finalize: "MPI_Finalize" ();
    allreduce: "MPI_Allreduce" (*const c_void, *mut c_void, c_int, Handle, Handle, Handle);
    allgather: "MPI_Allgather" (*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle);
}

/// The launcher that started this process among others.
pub fn launcher() -> Option<&'static [&'static str]> {
    let several = |name: &str| std::env::var(name).is_ok_and(|n| n.parse::<u64>().is_ok_and(|n| n > 1));
    LAUNCHERS.iter().find(|(name, _)| several(name)).map(|(_, libraries)| *libraries)
}

/// The library and its name. Errors: E0408.
pub fn open(libraries: &[&str]) -> Result<(*mut c_void, String)> {
    let given = std::env::var(LIBRARY).ok();
    let names: Vec<&str> = given.as_deref().map_or_else(|| libraries.to_vec(), |name| vec![name]);
    let mut why = String::new();
    for name in names {
        let Ok(path) = CString::new(name) else { continue };
        // SAFETY: an MPI library; what it does when it is loaded is its business. Its own plugins need its symbols.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !library.is_null() {
            return Ok((library, name.to_string()));
        }
        // SAFETY: the text is there until the next call of the kind.
        let error = unsafe { libc::dlerror() };
        if !error.is_null() {
            // SAFETY: as above.
            why = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
        }
    }
    let error =
        Error::user("E0408", format!("this process was started by an MPI launcher, but no library loads: {why}"));
    Err(error.help(format!("install Open MPI or MPICH, or name the library in `{LIBRARY}`")))
}

fn symbol(library: *mut c_void, name: &str) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    // SAFETY: the library is open for as long as the process.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Abi {
    pub fn of(library: *mut c_void) -> Abi {
        let address = |name| symbol(library, name).map(|at| at as usize);
        if let (Some(world), Some(byte), Some(float), Some(sum)) = (
            address("ompi_mpi_comm_world\0"),
            address("ompi_mpi_byte\0"),
            address("ompi_mpi_float\0"),
            address("ompi_mpi_op_sum\0"),
        ) {
            return Abi { world, byte, float, sum, status_ignore: 0, serialized: 2 };
        }
        match address("MPI_Abi_get_version\0") {
            Some(_) => Abi { world: 0x101, byte: 0x247, float: 0x210, sum: 0x21, status_ignore: 0, serialized: 2048 },
            None => Abi {
                world: 0x4400_0000,
                byte: 0x4c00_010d,
                float: 0x4c00_040a,
                sum: 0x5800_0003,
                status_ignore: 1,
                serialized: 2,
            },
        }
    }
}
