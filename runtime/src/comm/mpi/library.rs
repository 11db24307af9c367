//! the MPI library of this machine: found, loaded, with its functions and constants

use crate::comm::library::{self, functions, symbol};
use sardonyx_base::{Error, Result};
use std::ffi::{c_char, c_int, c_void};

/// Environment variable with the path of a library to load instead of the known ones.
const LIBRARY: &str = "SARDONYX_MPI";

/// Environment variables in which launchers put the number of ranks, each with the libraries to try if this number is
/// greater than 1.
static LAUNCHERS: &[(&str, &[&str])] = &[
    ("OMPI_COMM_WORLD_SIZE", &["libmpi.so.40", "libmpi_abi.so.1"]),
    ("PMI_SIZE", &["libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.1"]),
    ("SLURM_STEP_NUM_TASKS", &["libmpi_abi.so.1", "libmpi.so.40", "libmpi.so.12", "libmpich.so.12"]),
];

/// Environment variables that launchers set to the index of a rank among those of its host.
static PLACES: &[&str] = &["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// A handle of MPI, such as a communicator. It is an integer or an address, depending on the library; both are passed
/// like an address.
pub type Handle = usize;

/// The constants of an MPI library, which differ between ABIs.
pub struct Abi {
    pub world: Handle,
    pub byte: Handle,
    pub float: Handle,
    pub sum: Handle,
    pub status_ignore: usize,
    /// `MPI_THREAD_SERIALIZED`: calls from several threads, one at a time.
    pub serialized: c_int,
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

/// Returns the libraries to try if a launcher started this process as one of several.
pub fn launcher() -> Option<&'static [&'static str]> {
    let several = |name: &str| std::env::var(name).is_ok_and(|n| n.parse::<u64>().is_ok_and(|n| n > 1));
    LAUNCHERS.iter().find(|(name, _)| several(name)).map(|(_, libraries)| *libraries)
}

pub fn place_on_host() -> Option<usize> {
    launcher()?;
    PLACES.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Loads the library that `SARDONYX_MPI` names, or else the first of `libraries` that loads. Returns the handle from
/// `dlopen`, and the name. Errors: E0408.
pub fn open(libraries: &[&str]) -> Result<(*mut c_void, String)> {
    library::open(libraries, LIBRARY).map_err(|why| {
        let error =
            Error::user("E0408", format!("this process was started by an MPI launcher, but no library loads: {why}"));
        error.help(format!("install Open MPI or MPICH, or name the library in `{LIBRARY}`"))
    })
}

impl Abi {
    pub fn detect(library: *mut c_void) -> Abi {
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
